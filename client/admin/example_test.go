package admin_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
)

// daemon starts a bbd for one example and sets FOREBAY_SOCKET to its address. Stop it
// when the example is over.
func daemon() (stop func()) {
	tb := &exampleTB{}
	d := bbdtest.Start(tb)
	os.Setenv("FOREBAY_SOCKET", d.Socket)
	return func() {
		os.Unsetenv("FOREBAY_SOCKET")
		for _, f := range tb.cleanups {
			f()
		}
	}
}

// exampleTB stands in for a test where there is none.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (tb *exampleTB) Helper()                         {}
func (tb *exampleTB) Failed() bool                    { return false }
func (tb *exampleTB) Cleanup(f func())                { tb.cleanups = append(tb.cleanups, f) }
func (tb *exampleTB) Fatal(args ...any)               { log.Panic(args...) }
func (tb *exampleTB) Fatalf(f string, args ...any)    { log.Panicf(f, args...) }
func (tb *exampleTB) Errorf(f string, args ...any)    { log.Panicf(f, args...) }
func (tb *exampleTB) Logf(format string, args ...any) { log.Printf(format, args...) }

// A burst that is drained to a directory, and the buffer that is not needed any more.
func ExampleDrain() {
	defer daemon()()
	dir, err := os.MkdirTemp("", "store")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	ctx := context.Background()
	c, err := client.Dial(ctx, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "job", Backing: "file://" + dir}); err != nil {
		log.Fatal(err)
	}
	for i := range 3 {
		if err := c.Buffer("job").WriteFile(ctx, fmt.Sprintf("rank%d", i), []byte("result"), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := admin.Drain(ctx, c, "job", time.Minute, nil); err != nil {
		log.Fatal(err) // the report names the unsaved files
	}
	stored, err := filepath.Glob(filepath.Join(dir, "rank*"))
	fmt.Println(len(stored), "files are on the store", err)
	if err := admin.DestroyBuffer(ctx, c, "job"); err != nil {
		log.Fatal(err)
	}
	// Output: 3 files are on the store <nil>
}

// Input that is brought into a buffer before a job reads it.
func ExampleStageIn() {
	defer daemon()()
	dir, err := os.MkdirTemp("", "store")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "input"), []byte("numbers"), 0o644); err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	c, err := client.Dial(ctx, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "job"}); err != nil {
		log.Fatal(err)
	}
	report, err := admin.StageIn(ctx, c, admin.StageRequest{Buffer: "job", Path: "in", URL: "file://" + dir}, nil)
	if err != nil {
		log.Fatal(err)
	}
	data, err := c.Buffer("job").ReadFile(ctx, "in/input")
	fmt.Println(report.FilesDone, string(data), err)
	// Output: 1 numbers <nil>
}

// The buffers that a user may see.
func ExampleBuffers() {
	defer daemon()()
	ctx := context.Background()
	c, err := client.Dial(ctx, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for _, name := range []string{"run2", "run1"} {
		if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: name}); err != nil {
			log.Fatal(err)
		}
	}
	list, err := admin.Buffers(ctx, c)
	if err != nil {
		log.Fatal(err)
	}
	for _, b := range list {
		fmt.Println(b.Name, b.State)
	}
	// Output:
	// run1 active
	// run2 active
}
