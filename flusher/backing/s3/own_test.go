package s3

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"forebay/internal/bb"
)

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
	// A profile of the site's file is not replaced by the environment's settings.
	o.CredentialsFile = file
	put(server.SecretKey)
	if err := putAndGet(t, open(t, server.URL(bucket, "")+"&profile=mine", o)); err != nil {
		t.Errorf("with a profile: %v", err)
	}
}
