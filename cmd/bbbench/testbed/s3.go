package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"forebay/cmd/bbbench/process"
	"forebay/flusher/backing/s3"
	"forebay/internal/bb"
	"forebay/internal/hostlimit"
	"forebay/internal/measure"
)

// s3Server is the object store of rows 12 and 13: one that was named, or a process of
// ours on loopback.
type s3Server struct {
	url  string
	Note string

	process *process.Process // of ours
	keys    []string         // AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY of ours
	dir     string
}

const ourBucket = "bench"

// s3Started returns the requested store, or nil. It starts ours before the daemon, which must be
// given the keys.
func (e *Env) s3Started(ctx context.Context) (*s3Server, error) {
	switch {
	case e.S3 != nil:
	case e.Opts.S3 != "":
		e.S3 = &s3Server{url: e.Opts.S3, Note: "the store was given with --s3"}
	case e.Opts.S3Server != "":
		s, err := startS3(ctx, e.Opts.S3Server, e.Store)
		if err != nil {
			return nil, err
		}
		e.S3 = s
	}
	return e.S3, nil
}

// startS3 starts a server that keeps objects as files below a folder.
func startS3(ctx context.Context, binary, below string) (*s3Server, error) {
	s := &s3Server{
		dir: filepath.Join(below, "s3"), keys: []string{"forebay-bench", "forebay-bench-secret"},
		Note: "the store is " + filepath.Base(binary) + " on loopback, over " + hostlimit.FileSystem(below) + ", on the same processors as everything else",
	}
	if err := os.MkdirAll(filepath.Join(s.dir, ourBucket), 0o700); err != nil {
		return nil, bb.Wrap("bench", s.dir, err)
	}
	address, err := freePort()
	if err != nil {
		return nil, bb.Wrap("bench", "loopback", err)
	}
	s.url = fmt.Sprintf("s3://%s/?%s", ourBucket, url.Values{
		"endpoint": {"http://" + address}, "region": {"us-east-1"}, "path_style": {"true"},
	}.Encode())
	s.process, err = process.StartProcess(exec.Command(binary, "--port", address, "--access", s.keys[0], "--secret", s.keys[1],
		"--region", "us-east-1", "--keep-alive", "--quiet", "posix", s.dir), nil)
	if err != nil {
		return nil, bb.Wrap("bench", binary, err)
	}
	if err := s.waitServing(ctx, address); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *s3Server) waitServing(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, process.StartTime)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-s.process.Ended:
			return fmt.Errorf("the S3 server ended at its start: %s", s.process.Said())
		case <-ctx.Done():
			return fmt.Errorf("the S3 server does not serve: %s", s.process.Said())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// env returns the environment of a daemon that is to reach the store.
func (s *s3Server) env() []string {
	if s == nil || s.keys == nil {
		return nil
	}
	return []string{"AWS_ACCESS_KEY_ID=" + s.keys[0], "AWS_SECRET_ACCESS_KEY=" + s.keys[1]}
}

// Under returns the store's URL with a further prefix.
func (s *s3Server) Under(prefix string) string {
	address, query, _ := strings.Cut(s.url, "?")
	return strings.TrimRight(address, "/") + "/" + prefix + "?" + query
}

func (s *s3Server) stop() error {
	if s.process == nil {
		return nil
	}
	return errors.Join(s.process.End(unix.SIGTERM, process.StopTime), os.RemoveAll(s.dir))
}

// PlainS3 opens the store with minio-go alone.
func (e *Env) PlainS3(ctx context.Context) (*s3.Plain, error) {
	server, err := e.s3Started(ctx)
	if err != nil {
		return nil, err
	}
	if server == nil {
		return nil, measure.Cannot("there is no object store to measure: give --s3 s3://BUCKET/PREFIX?endpoint=… or --s3-server BINARY")
	}
	if _, err := e.Connect(ctx); err != nil {
		return nil, err
	}
	if server.process != nil && !e.Daemon.Ours() {
		return nil, measure.Cannot("the running daemon has no keys of an S3 server that is started here: give --s3")
	}
	where, err := bb.ParseBacking(server.url)
	if err != nil {
		return nil, err
	}
	var opts s3.Options
	if server.keys != nil {
		opts.AccessKey, opts.SecretKey = server.keys[0], server.keys[1]
	}
	return s3.OpenPlain(where, opts)
}
