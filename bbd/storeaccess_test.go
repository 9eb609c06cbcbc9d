package bbd_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/bbd/storerules"
	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
)

// stagerEnv makes this binary a program of the other user that requests one stage-in from each of
// many URLs, and a buffer on each, and prints the results.
const stagerEnv = "FOREBAY_TEST_STAGER"

type stager struct {
	Socket string
	URLs   map[string]string // by description
}

// outcome is the error of a request. Kind is "done" if it did not fail.
type outcome struct{ Kind, Text string }

func stageAll(told string) int {
	var s stager
	if err := json.Unmarshal([]byte(told), &s); err != nil {
		fmt.Println(err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Options{Address: "unix://" + s.Socket})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer c.Close()
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "into"}); err != nil {
		fmt.Println(err)
		return 1
	}
	came := make(map[string]outcome)
	note := func(name string, err error) {
		came[name] = outcome{Kind: "done"}
		if err != nil {
			came[name] = outcome{client.KindOf(err).String(), err.Error()}
		}
	}
	n := 0
	for name, url := range s.URLs {
		n++
		_, err := admin.StageIn(ctx, c, admin.StageRequest{Buffer: "into", Path: "x", URL: url}, nil)
		note(name, err)
		_, err = admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: fmt.Sprint("on", n), Backing: url})
		note("a buffer: "+name, err)
	}
	if json.NewEncoder(os.Stdout).Encode(came) != nil {
		return 1
	}
	return 0
}

// spy is an empty store that records the requests.
type spy struct {
	mu   sync.Mutex
	sent []string
}

func (s *spy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.sent = append(s.sent, r.Header.Get("Authorization")+" "+r.Header.Get("X-Amz-Security-Token"))
	s.mu.Unlock()
	w.WriteHeader(http.StatusNotFound)
}

func (s *spy) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.sent, "\n")
}

// TestStoreOfAUser lets no user have the daemon send the site's credentials to a host of the
// user's choice, nor read files that the user may not read, nor wait for a FIFO. Credentials of
// the user's own are read with the user's rights.
func TestStoreOfAUser(t *testing.T) {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "SITEKEY", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "SITETOKEN"} {
		t.Setenv(name, value)
	}
	var over, bare spy
	plain, secure := httptest.NewServer(&bare), httptest.NewTLSServer(&over)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	open := openDir(t)
	put := func(dir, name, text string, uid int) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(file, uid, uid); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const credentials = "[default]\naws_access_key_id=%s\naws_secret_access_key=s\n"
	own := put(open, "credentials", fmt.Sprintf(credentials, "USERKEY"), intruderUID)
	roots := put(open, "roots", fmt.Sprintf(credentials, "ROOTKEY"), 0)
	closed := mkdir(t, open, "closed", 0o700)
	put(closed, "there", "x", 0)
	ca := put(open, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})), intruderUID)
	large := put(open, "large.pem", "", intruderUID)
	if err := os.Truncate(large, 1500<<20); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(open, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(fifo, intruderUID, intruderUID); err != nil {
		t.Fatal(err)
	}

	n := startNode(t, nil)
	chmod(t, n.dir, 0o755)
	at := func(server *httptest.Server, more string) string {
		return "s3://bucket/x?path_style=true&region=us-east-1&endpoint=" + server.URL + more
	}
	mine := "&credentials=" + own
	s := stager{Socket: n.socket, URLs: map[string]string{
		"a host":                           at(plain, ""),
		"a host, another profile":          at(plain, "&profile=other"),
		"a host, a file as ca":             at(plain, "&ca=/etc/shadow"),
		"a host, a file that is not there": at(plain, "&ca="+closed+"/none"),
		"a host over TLS":                  at(secure, ""),
		"a host over TLS, a FIFO":          at(secure, "&ca="+fifo),
		"a host over TLS, a large file":    at(secure, "&ca="+large),
		"own, without TLS":                 at(plain, mine),
		"own":                              at(secure, mine+"&ca="+ca),
		"own, a FIFO as ca":                at(secure, mine+"&ca="+fifo),
		"own, a large ca":                  at(secure, mine+"&ca="+large),
		"own, root's file as ca":           at(secure, mine+"&ca="+roots),
		"root's credentials":               at(secure, "&credentials="+roots+"&ca="+ca),
		"credentials twice":                at(secure, "&credentials=&credentials="+roots+"&ca="+ca),
		"a FIFO as credentials":            at(secure, "&credentials="+fifo),
		"a device as credentials":          at(secure, "&credentials=/dev/zero"),
		"a secret there":                   at(secure, "&credentials="+closed+"/there"),
		"a secret not there":               at(secure, "&credentials="+closed+"/none"),
	}}
	told, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var came map[string]outcome
	if err := json.Unmarshal(asOther(t, open, stagerEnv+"="+string(told)), &came); err != nil {
		t.Fatal(err)
	}
	for name, got := range came {
		want := bb.Permission
		switch {
		case strings.HasSuffix(name, "own"): // the store answers that there is no such bucket
			want = bb.NotFound
		case strings.Contains(name, "own, a FIFO"), strings.Contains(name, "own, a large"), strings.Contains(name, "as credentials"):
			want = bb.Invalid
		}
		if got.Kind != want.String() {
			t.Errorf("%s: %+v, want %v", name, got, want)
		}
	}
	there, not := came["a secret there"].Text, came["a secret not there"].Text
	if there == "" || strings.ReplaceAll(there, "/there", "/none") != not {
		t.Errorf("whether a secret file is there can be told: %q, %q", there, not)
	}
	if sent := bare.all(); sent != "" {
		t.Errorf("the daemon sent without TLS: %q", sent)
	}
	if sent := over.all(); !strings.Contains(sent, "USERKEY") || strings.Contains(sent, "SITE") || strings.Contains(sent, "ROOTKEY") {
		t.Errorf("the user's store was sent %q", sent)
	}
}

// TestStoreRules has the administrator's list decide, and leaves the daemon's owner free.
func TestStoreRules(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "SITEKEY")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	var seen spy
	store := httptest.NewServer(&seen)
	t.Cleanup(store.Close)
	open := openDir(t)
	n := startNode(t, func(c *bbd.Config) {
		c.StoreRules = []storerules.Rule{{Users: []string{fmt.Sprint("@", intruderUID)}, Endpoints: []string{store.URL}, Buckets: []string{"theirs-*"}}}
	})
	chmod(t, n.dir, 0o755)
	query := "/x?path_style=true&region=us-east-1&endpoint=" + store.URL
	told, err := json.Marshal(stager{Socket: n.socket, URLs: map[string]string{"listed": "s3://theirs-1" + query, "not listed": "s3://others" + query}})
	if err != nil {
		t.Fatal(err)
	}
	var came map[string]outcome
	if err := json.Unmarshal(asOther(t, open, stagerEnv+"="+string(told)), &came); err != nil {
		t.Fatal(err)
	}
	if got := came["listed"].Kind; got != bb.NotFound.String() {
		t.Errorf("a store that is listed: %+v", came["listed"])
	}
	if got := came["not listed"]; got.Kind != bb.Permission.String() || !strings.Contains(got.Text, "bucket=others") {
		t.Errorf("a store that is not: %+v", got)
	}
	if sent := seen.all(); !strings.Contains(sent, "SITEKEY") {
		t.Errorf("the store was sent %q", sent)
	}
	_, err = admin.CreateBuffer(t.Context(), n.dial(), admin.BufferSpec{Name: "roots", Backing: "s3://others" + query})
	if client.KindOf(err) != client.ErrNotFound {
		t.Errorf("the daemon's owner: %v", err)
	}
}
