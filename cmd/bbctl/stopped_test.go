package main

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
	"forebay/internal/bbdtest"
	"forebay/internal/cli"
	"forebay/internal/s3test"
)

// TestStoppedServer: an S3 server that is stopped (SIGSTOP) takes connections and never answers.
// Each command for it prints after two seconds the reason of its wait. When --timeout has passed,
// it ends. An absent server is an error at once, of something that was not done.
func TestStoppedServer(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	bucket := server.Bucket(t, "bucket")
	absent := s3test.Server{Endpoint: "http://" + bbdtest.FreePort(t, "127.0.0.1"), Region: server.Region}
	d := bbdtest.New(t)
	d.Env = server.Env()
	d.Start()
	c, err := client.Dial(t.Context(), client.Options{Address: "unix://" + d.Socket})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "b", Backing: "file://" + t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	if err := c.Buffer("b").WriteFile(t.Context(), "f", []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	resume := server.Pause(t)
	defer resume()
	asking := func(url string) [][]string {
		return [][]string{{"buffer", "create", "new", "--backing", url}, {"stage-in", url, "bb://b/in"}, {"stage-out", "bb://b/f", url}}
	}
	for _, args := range asking(absent.URL(bucket, "absent")) {
		// The reason is in the error, or beside the file in the list of those that failed.
		out, _, err := runsFor(t, d.Socket, "1m", args)
		if err == nil || errors.Is(err, client.ErrUnknownOutcome) || !strings.Contains(err.Error()+out, "connection refused") {
			t.Errorf("%s of an absent server: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	var all sync.WaitGroup
	url := server.URL(bucket, "stopped")
	for _, args := range asking(url) {
		all.Go(func() {
			began := time.Now()
			_, errs, err := runsFor(t, d.Socket, "5s", args)
			if err == nil || app.ExitCode(err) != cli.ExitCancelled {
				t.Errorf("%s: %v, want exit code %d", strings.Join(args, " "), err, cli.ExitCancelled)
			}
			if took := time.Since(began); took < 5*time.Second {
				t.Errorf("%s ended after %v", strings.Join(args, " "), took)
			}
			if n := strings.Count(errs, "no answer after 2s: waiting for the daemon, which uses "+url); n != 1 {
				t.Errorf("%s: %d lines of the wait, want 1: %q", strings.Join(args, " "), n, errs)
			}
		})
	}
	all.Wait()
}

// runsFor runs a command with a timeout, and returns its standard output and standard error.
func runsFor(t *testing.T, socket, timeout string, args []string) (out, errs string, err error) {
	var list, text strings.Builder
	a := &app.App{In: strings.NewReader(""), Out: &list, Err: &text}
	defer a.Close()
	cmd := newCommand(a)
	cmd.SetArgs(append(args, "--timeout", timeout, "--socket", socket))
	err = cmd.ExecuteContext(t.Context())
	return list.String(), text.String(), err
}
