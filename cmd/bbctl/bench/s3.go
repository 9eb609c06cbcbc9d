package bench

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

	"forebay/flusher/backing/s3"
	"forebay/internal/bb"
)

// s3Server is the object store of rows 12 and 13: one that was named, or a process of
// ours on loopback.
type s3Server struct {
	url  string
	note string

	process *process // of ours
	keys    []string // AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY of ours
	dir     string
}

const ourBucket = "bench"

// s3Started returns the store that was asked for, nil if none was. It starts ours
// before the daemon, which must be given the keys.
func (e *env) s3Started(ctx context.Context) (*s3Server, error) {
	switch {
	case e.s3 != nil:
	case e.opts.s3 != "":
		e.s3 = &s3Server{url: e.opts.s3, note: "the store was given with --s3"}
	case e.opts.s3Server != "":
		s, err := startS3(ctx, e.opts.s3Server, e.store)
		if err != nil {
			return nil, err
		}
		e.s3 = s
	}
	return e.s3, nil
}

// startS3 starts a server that keeps objects as files below a folder.
func startS3(ctx context.Context, binary, below string) (*s3Server, error) {
	s := &s3Server{
		dir: filepath.Join(below, "s3"), keys: []string{"forebay-bench", "forebay-bench-secret"},
		note: "the store is " + filepath.Base(binary) + " on loopback, over " + fileSystem(below) + ", on the same processors as everything else",
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
	s.process, err = startProcess(exec.Command(binary, "--port", address, "--access", s.keys[0], "--secret", s.keys[1],
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
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-s.process.ended:
			return fmt.Errorf("the S3 server ended at its start: %s", s.process.said())
		case <-ctx.Done():
			return fmt.Errorf("the S3 server does not serve: %s", s.process.said())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// env returns what the daemon needs in its environment to reach the store.
func (s *s3Server) env() []string {
	if s == nil || s.keys == nil {
		return nil
	}
	return []string{"AWS_ACCESS_KEY_ID=" + s.keys[0], "AWS_SECRET_ACCESS_KEY=" + s.keys[1]}
}

// under returns the store's URL with a further prefix.
func (s *s3Server) under(prefix string) string {
	address, query, _ := strings.Cut(s.url, "?")
	return strings.TrimRight(address, "/") + "/" + prefix + "?" + query
}

func (s *s3Server) stop() error {
	if s.process == nil {
		return nil
	}
	return errors.Join(s.process.end(unix.SIGTERM, stopTime), os.RemoveAll(s.dir))
}

// plainS3 opens the store with minio-go alone.
func (e *env) plainS3(ctx context.Context) (*s3.Plain, error) {
	server, err := e.s3Started(ctx)
	if err != nil {
		return nil, err
	}
	if server == nil {
		return nil, cannot("there is no object store to measure: give --s3 s3://BUCKET/PREFIX?endpoint=… or --s3-server BINARY")
	}
	if _, err := e.connect(ctx); err != nil {
		return nil, err
	}
	if server.process != nil && !e.daemon.ours() {
		return nil, cannot("the running daemon has no keys of an S3 server that is started here: give --s3")
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

func fileName(i int) string { return fmt.Sprintf("f%d", i) }

func objectName(prefix string, i int) string { return prefix + "/" + fileName(i) }

// removeObjects removes what a round has left in the store.
func removeObjects(ctx context.Context, plain *s3.Plain, n int, prefixes ...string) error {
	for _, prefix := range prefixes {
		for i := range n {
			if err := plain.Remove(ctx, objectName(prefix, i)); err != nil {
				return err
			}
		}
	}
	return nil
}
