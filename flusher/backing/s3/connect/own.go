package connect

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"forebay/internal/bb"
)

// ownFile are the credentials of the user who named the store, in a file that may change while the
// store is open, as those of a limited life do.
type ownFile struct {
	name, profile string
	read          func(string) ([]byte, error)

	mu   sync.Mutex
	late time.Time // when the file is read again
}

// ownFor is the time between reads of the file.
const ownFor = time.Minute

var _ credentials.Provider = (*ownFile)(nil)

// Retrieve reads the file.
func (o *ownFile) Retrieve() (v credentials.Value, err error) {
	fail := func(err error) (credentials.Value, error) {
		return credentials.Value{}, bb.Wrap("backing", "credentials="+o.name, err)
	}
	text, err := o.read(o.name)
	if err != nil {
		return fail(err)
	}
	if v, err = ParseCredentials(string(text), o.profile); err != nil {
		return fail(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.late = time.Now().Add(ownFor)
	return v, nil
}

// RetrieveWithCredContext is Retrieve.
func (o *ownFile) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return o.Retrieve()
}

// IsExpired reports whether the file is to be read again.
func (o *ownFile) IsExpired() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Now().After(o.late)
}

// ParseCredentials reads one profile of a shared credentials file of AWS:
//
//	[default]
//	aws_access_key_id = AK…
//	aws_secret_access_key = …
//	aws_session_token = …      with those of a limited life
//
// Other keys are refused. The reader of minio-go supports credential_process, a command that it
// runs. One of a user's would run with the rights of the daemon. No error holds a line of the file.
func ParseCredentials(text, profile string) (credentials.Value, error) {
	if profile == "" {
		profile = "default"
	}
	v, in := credentials.Value{SignerType: credentials.SignatureV4}, false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if name, ok := strings.CutPrefix(line, "["); ok {
			in = strings.TrimSpace(strings.TrimSuffix(name, "]")) == profile
			continue
		}
		key, value, found := strings.Cut(line, "=")
		if value = strings.TrimSpace(value); !in || !found {
			continue
		}
		switch strings.ToLower(strings.TrimSpace(key)) {
		case "aws_access_key_id":
			v.AccessKeyID = value
		case "aws_secret_access_key":
			v.SecretAccessKey = value
		case "aws_session_token":
			v.SessionToken = value
		}
	}
	if v.AccessKeyID == "" || v.SecretAccessKey == "" {
		return credentials.Value{}, bb.E(bb.Invalid, "backing", "", fmt.Sprintf("it has no aws_access_key_id and aws_secret_access_key for the profile %q", profile))
	}
	return v, nil
}
