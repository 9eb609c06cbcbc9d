// Package s3test starts a real S3 server for tests, on loopback, in a folder of its own. A test that cannot
// have one fails and is never skipped. The package must never import the store that is tested with it.
//
// The server is versitygw, over its posix backend. It was chosen after trials of the features that
// we depend on. It computes the CRC-64/NVME of a single PUT and of a whole upload in parts, refuses
// both when the checksum sent does not match, returns it from PUT, HEAD and
// CompleteMultipartUpload, and keeps objects as plain files, so that a test can damage one behind
// the server's back. It builds in a minute and its licence is Apache-2.0. Its difference from AWS:
// "a" and "a/b" cannot both be objects, since they are a file and a directory.
package s3test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"forebay/internal/porttest"
	"forebay/internal/sourcetest"
)

// Server is a running S3 server.
type Server struct {
	Endpoint  string // http://127.0.0.1:port
	Region    string
	AccessKey string
	SecretKey string
	Dir       string // holds a folder for each bucket, and objects as files in it

	flags   []string
	address string
	output  syncBuffer
	process *exec.Cmd
	ended   chan struct{}
	endErr  error
}

const (
	startTime = 30 * time.Second
	stopTime  = 20 * time.Second // it waits ten itself for connections that are left
)

// Start builds the server if need be, starts it, and stops it when the test ends. Flags
// are versitygw's own.
func Start(t testing.TB, flags ...string) *Server {
	t.Helper()
	s := &Server{
		flags:  flags,
		Region: "us-east-1", AccessKey: "forebay-test", SecretKey: "forebay-test-secret",
		Dir: t.TempDir(), ended: make(chan struct{}),
	}
	binary := build(t)
	// The port may be taken between its choice and the server's start. Then the test chooses again.
	var err error
	for range 3 {
		if err = s.start(binary); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("s3test: cannot start %s: %v", binary, err)
	}
	t.Cleanup(func() { s.stop(t) })
	return s
}

// Bucket makes a bucket and returns its name.
func (s *Server) Bucket(t testing.TB, name string) string {
	t.Helper()
	if err := os.Mkdir(filepath.Join(s.Dir, name), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// URL returns the backing URL of a prefix in a bucket on this server.
func (s *Server) URL(bucket, prefix string) string {
	q := url.Values{"endpoint": {s.Endpoint}, "region": {s.Region}, "path_style": {"true"}}
	return (&url.URL{Scheme: "s3", Host: bucket, Path: "/" + prefix, RawQuery: q.Encode()}).String()
}

// File returns the file in which the server keeps an object.
func (s *Server) File(bucket, key string) string {
	return filepath.Join(s.Dir, bucket, filepath.FromSlash(key))
}

// Env returns the environment variables that give a program the credentials.
func (s *Server) Env() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey}
}

// build returns the server's binary.
func build(t testing.TB) string {
	t.Helper()
	root, err := sourcetest.Root()
	if err != nil {
		t.Fatal("s3test: ", err)
	}
	script := filepath.Join(root, "scripts", "s3server-build.sh")
	var stderr bytes.Buffer
	cmd := exec.Command(script)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("s3test: %s: %v\n%s", script, err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

func (s *Server) start(binary string) error {
	address, err := porttest.Free("127.0.0.1")
	if err != nil {
		return err
	}
	s.address, s.Endpoint = address, "http://"+address
	args := append([]string{
		"--port", s.address, "--access", s.AccessKey, "--secret", s.SecretKey, "--region", s.Region, "--keep-alive", "--quiet",
	}, s.flags...)
	s.process = exec.Command(binary, append(args, "posix", s.Dir)...)
	s.process.Stdout, s.process.Stderr = &s.output, &s.output
	// The server goes when the test's process is killed.
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	ended := make(chan struct{})
	s.ended = ended
	go s.run(started, ended)
	if err := <-started; err != nil {
		return err
	}
	return s.waitReady()
}

// run starts the process and waits for it, on one thread. The kernel sends the death signal when the thread that
// started the process ends.
func (s *Server) run(started chan<- error, ended chan<- struct{}) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(ended)
	err := s.process.Start()
	started <- err
	if err == nil {
		s.endErr = s.process.Wait()
	}
}

// waitReady waits until the server answers HTTP.
func (s *Server) waitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint+"/", nil)
		if err != nil {
			return err
		}
		req.Close = true
		answer, err := http.DefaultClient.Do(req)
		if err == nil {
			return answer.Body.Close()
		}
		select {
		case <-s.ended:
			return fmt.Errorf("it ended: %w\n%s", s.endErr, s.output.String())
		case <-ctx.Done():
			err = fmt.Errorf("it does not answer after %v: %w\n%s", startTime, err, s.output.String())
			s.process.Process.Kill()
			<-s.ended
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Pause stops the server's process. It keeps its connections, and answers nothing. The function
// that it returns has it continue, which happens at the end of the test at the latest.
func (s *Server) Pause(t testing.TB) (resume func()) {
	t.Helper()
	if err := s.process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume = sync.OnceFunc(func() {
		if err := s.process.Process.Signal(syscall.SIGCONT); err != nil {
			t.Errorf("s3test: %v", err)
		}
	})
	t.Cleanup(resume)
	return resume
}

func (s *Server) stop(t testing.TB) {
	s.process.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(stopTime):
		s.process.Process.Kill()
		<-s.ended
		t.Errorf("s3test: the server did not end after SIGTERM\n%s", s.output.String())
	}
}

// syncBuffer takes the server's output while a test may read it.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
