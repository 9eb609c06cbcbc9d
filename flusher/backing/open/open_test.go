package open_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"forebay/flusher/backing"
	"forebay/flusher/backing/backingtest"
	"forebay/flusher/backing/fault"
	"forebay/flusher/backing/limit"
	"forebay/flusher/backing/open"
	"forebay/flusher/backing/retry"
	"forebay/flusher/backing/s3"
	"forebay/internal/bb"
	"forebay/internal/s3test"

	"golang.org/x/time/rate"
)

const large = 11 << 20

func TestMain(m *testing.M) {
	os.Exit(backingtest.Main(m, func(url string) (backing.Store, error) {
		return open.Open(context.Background(), url, options(nil))
	}))
}

func options(plan *fault.Plan) open.Options {
	o := open.Options{
		Owner: backing.NewOwner(7), Faults: plan, Retry: retry.Options{Min: time.Millisecond},
		Limiters: []*rate.Limiter{limit.New(1 << 40)},
		S3:       s3.Options{PartSize: 5 << 20, Threshold: 6 << 20},
	}
	o.POSIX.PartSize = 1 << 20
	return o
}

// located is a store that records its folder, for Damage.
type located struct {
	backing.Store
	dir string
}

// TestSuiteThroughTheStack runs the suite on both real adaptors behind all wrappers, failing now and then.
func TestSuiteThroughTheStack(t *testing.T) {
	server := s3test.Start(t)
	t.Setenv("AWS_ACCESS_KEY_ID", server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", server.SecretKey)
	buckets := 0
	places := map[string]func(t *testing.T) (url, dir string){
		"posix": func(t *testing.T) (string, string) { dir := t.TempDir(); return "file://" + dir, dir },
		"s3": func(t *testing.T) (string, string) {
			buckets++
			bucket := server.Bucket(t, "bucket-"+strconv.Itoa(buckets))
			return server.URL(bucket, "p"), filepath.Join(server.Dir, bucket, "p")
		},
	}
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			openAt := func(t *testing.T, url, dir string) backing.Store {
				plan := fault.NewPlan(
					fault.Rule{Op: "put", Kind: fault.Reset, Skip: 1, Count: 1}, fault.Rule{Op: "put", Kind: fault.Busy, Skip: 2, Count: 2},
					fault.Rule{Op: "get", Kind: fault.Refused, Count: 1}, fault.Rule{Op: "stat", Kind: fault.Full, Count: 1},
					fault.Rule{Op: "rename", Kind: fault.Reset, Count: 1}, fault.Rule{Op: "remove", Kind: fault.Reset, Count: 1},
				)
				s, err := open.Open(t.Context(), url, options(plan))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				return located{s, dir}
			}
			backingtest.Suite(t, backingtest.Harness{
				Open: func(t *testing.T) backing.Store {
					url, dir := place(t)
					return openAt(t, url, dir)
				},
				Large: large,
				Damage: func(t *testing.T, s backing.Store, name string) {
					f, err := os.OpenFile(filepath.Join(s.(located).dir, name), os.O_RDWR, 0)
					if err != nil {
						t.Fatal(err)
					}
					defer f.Close()
					if _, err := f.WriteAt([]byte("damage"), 100); err != nil {
						t.Fatal(err)
					}
				},
				Crash: func(t *testing.T, name string) backing.Store {
					url, dir := place(t)
					backingtest.Kill(t, url, name, large)
					return openAt(t, url, dir)
				},
			})
		})
	}
}

func TestBadURLs(t *testing.T) {
	for _, url := range []string{"", "file:///", "file://host/x", "http://x", "s3://", "s3://b?nonsense=1"} {
		if _, err := open.Open(t.Context(), url, open.Options{}); !errors.Is(err, bb.Invalid) {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := open.Open(t.Context(), "file:///does/not/exist", open.Options{}); !errors.Is(err, bb.NotFound) {
		t.Error(err)
	}
}
