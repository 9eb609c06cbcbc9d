package s3

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"forebay/internal/bb"
)

func TestParseCredentials(t *testing.T) {
	const text = "# of mine\n[default]\naws_access_key_id = A\nAWS_SECRET_ACCESS_KEY=S=1\n\n[ other ]\naws_access_key_id=B\naws_secret_access_key=T\naws_session_token=X\n[half]\naws_access_key_id=C\n[run]\ncredential_process=/bin/true\n"
	for profile, want := range map[string][3]string{"": {"A", "S=1", ""}, "default": {"A", "S=1", ""}, "other": {"B", "T", "X"}} {
		v, err := parseCredentials(text, profile)
		if got := [3]string{v.AccessKeyID, v.SecretAccessKey, v.SessionToken}; err != nil || got != want {
			t.Errorf("%q: got %q (%v), want %q", profile, got, err, want)
		}
	}
	for _, profile := range []string{"half", "run", "none"} {
		if v, err := parseCredentials(text, profile); bb.KindOf(err) != bb.Invalid || v.AccessKeyID != "" {
			t.Errorf("%q: got %q (%v)", profile, v.AccessKeyID, err)
		}
	}
	if _, err := parseCredentials("root:$6$secret:1::::\n", ""); err == nil || strings.Contains(err.Error(), "secret:") {
		t.Errorf("what is no such file: %v", err)
	}
}

func FuzzParseCredentials(f *testing.F) {
	f.Add("[default]\naws_access_key_id=A\naws_secret_access_key=S", "")
	f.Fuzz(func(t *testing.T, text, profile string) {
		if v, err := parseCredentials(text, profile); (err == nil) != (v.AccessKeyID != "" && v.SecretAccessKey != "") {
			t.Errorf("got %q and %q (%v)", v.AccessKeyID, v.SecretAccessKey, err)
		}
	})
}

// TestOwnCredentials uses a store with credentials that its URL names, which may change, and not
// with those of the environment.
func TestOwnCredentials(t *testing.T) {
	server := start(t)
	bucket := server.Bucket(t, "own")
	o := options()
	o.AccessKey, o.SecretKey = "", ""
	t.Setenv("AWS_ACCESS_KEY_ID", "site")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "of the site")
	file := filepath.Join(t.TempDir(), "credentials")
	put := func(secret string) {
		t.Helper()
		text := "[mine]\naws_access_key_id=" + server.AccessKey + "\naws_secret_access_key=" + secret + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(server.SecretKey)
	url := server.URL(bucket, "") + "&profile=mine&credentials=" + file
	if err := putAndGet(t, open(t, url, o)); err != nil {
		t.Error(err)
	}
	put("wrong")
	if err := putAndGet(t, open(t, url, o)); !errors.Is(err, bb.Permission) {
		t.Errorf("with a wrong secret: %v", err)
	}
	where, err := bb.ParseBacking(strings.Replace(url, file, file+".none", 1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(where, o); bb.KindOf(err) != bb.NotFound {
		t.Errorf("without the file: %v", err)
	}
	// A profile of the site's file is not replaced by what the environment has.
	o.CredentialsFile = file
	put(server.SecretKey)
	if err := putAndGet(t, open(t, server.URL(bucket, "")+"&profile=mine", o)); err != nil {
		t.Errorf("with a profile: %v", err)
	}
}
