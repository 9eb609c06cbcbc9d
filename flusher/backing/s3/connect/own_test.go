package connect

import (
	"strings"
	"testing"

	"forebay/internal/bb"
)

func TestParseCredentials(t *testing.T) {
	const text = "# of mine\n[default]\naws_access_key_id = A\nAWS_SECRET_ACCESS_KEY=S=1\n\n[ other ]\naws_access_key_id=B\naws_secret_access_key=T\naws_session_token=X\n[half]\naws_access_key_id=C\n[run]\ncredential_process=/bin/true\n"
	for profile, want := range map[string][3]string{"": {"A", "S=1", ""}, "default": {"A", "S=1", ""}, "other": {"B", "T", "X"}} {
		v, err := ParseCredentials(text, profile)
		if got := [3]string{v.AccessKeyID, v.SecretAccessKey, v.SessionToken}; err != nil || got != want {
			t.Errorf("%q: got %q (%v), want %q", profile, got, err, want)
		}
	}
	for _, profile := range []string{"half", "run", "none"} {
		if v, err := ParseCredentials(text, profile); bb.KindOf(err) != bb.Invalid || v.AccessKeyID != "" {
			t.Errorf("%q: got %q (%v)", profile, v.AccessKeyID, err)
		}
	}
	if _, err := ParseCredentials("root:$6$secret:1::::\n", ""); err == nil || strings.Contains(err.Error(), "secret:") {
		t.Errorf("what is no such file: %v", err)
	}
}

func FuzzParseCredentials(f *testing.F) {
	f.Add("[default]\naws_access_key_id=A\naws_secret_access_key=S", "")
	f.Fuzz(func(t *testing.T, text, profile string) {
		if v, err := ParseCredentials(text, profile); (err == nil) != (v.AccessKeyID != "" && v.SecretAccessKey != "") {
			t.Errorf("got %q and %q (%v)", v.AccessKeyID, v.SecretAccessKey, err)
		}
	})
}
