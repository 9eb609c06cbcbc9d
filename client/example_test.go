package client_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"testing"

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

func Example() {
	defer daemon()()
	ctx := context.Background()
	c, err := client.Dial(ctx, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "scratch"}); err != nil {
		log.Fatal(err)
	}
	b := c.Buffer("scratch")

	f, err := b.Create(ctx, "hello.txt")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Abort() // does nothing after Close
	fmt.Fprintln(f, "hello from memory")
	if err := f.Close(); err != nil { // here it is visible to all
		log.Fatal(err)
	}

	data, err := b.ReadFile(ctx, "hello.txt")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(string(data))
	// Output: hello from memory
}

// Serialising straight into the memory that the file will be in. No byte is copied.
func ExampleFile_Reserve() {
	defer daemon()()
	ctx := context.Background()
	c, err := client.Dial(ctx, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "scratch"}); err != nil {
		log.Fatal(err)
	}
	f, err := c.Buffer("scratch").Create(ctx, "numbers")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Abort()

	const count = 100_000
	mem, err := f.Reserve(8 * count)
	if err != nil {
		log.Fatal(err)
	}
	for i := range uint64(count) {
		binary.LittleEndian.PutUint64(mem[8*i:], i*i)
	}
	if err := f.Publish(8 * count); err != nil {
		log.Fatal(err)
	}
	if err := f.Close(); err != nil {
		log.Fatal(err)
	}

	// And back, without a copy either.
	r, err := c.Buffer("scratch").Open(ctx, "numbers")
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	m, err := r.Map(8*1000, 8)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Release()
	fmt.Println(m.Len(), binary.LittleEndian.Uint64(bytes.Join(m.Slices(), nil)))
	// Output: 8 1000000
}

// A log that survives the program and the daemon after every line.
func ExampleFile_Sync() {
	defer daemon()()
	ctx := context.Background()
	c, err := client.Dial(ctx, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "scratch"}); err != nil {
		log.Fatal(err)
	}
	b := c.Buffer("scratch")
	f, err := b.OpenFile(ctx, "log", client.OpenOptions{Write: true, Create: true, Append: true})
	if err != nil {
		log.Fatal(err)
	}
	defer f.Abort()
	for i := range 3 {
		fmt.Fprintf(f, "step %d\n", i)
		if err := f.Sync(); err != nil {
			log.Fatal(err)
		}
	}
	data, err := b.ReadFile(ctx, "log") // while it is still open for writing
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(string(data))
	// Output:
	// step 0
	// step 1
	// step 2
}

// A job whose tasks write many files that become part of one directory in one step. The second
// attempt of the task was too late. Its files are gone.
func ExampleBuffer_Begin() {
	defer daemon()()
	ctx := context.Background()
	c, err := client.Dial(ctx, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "scratch"}); err != nil {
		log.Fatal(err)
	}
	b := c.Buffer("scratch")
	job, err := b.Begin(ctx, client.TxnSpec{Destination: "table", Key: "job 4711"})
	if err != nil {
		log.Fatal(err)
	}
	for _, attempt := range []string{"first", "second"} {
		dir := job.Path("task 0", attempt) + "/day=1"
		if err := b.MkdirAll(ctx, dir, 0o755); err != nil {
			log.Fatal(err)
		}
		if err := b.WriteFile(ctx, dir+"/part", []byte(attempt), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	for _, attempt := range []string{"first", "second"} {
		winner, err := job.Adopt(ctx, "task 0", attempt)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(attempt, "attempt: the output is that of the", winner)
	}
	_, err = b.Stat(ctx, "table/day=1/part")
	fmt.Println("before:", client.KindOf(err))
	if _, err := job.Commit(ctx, client.CommitOptions{}); err != nil {
		log.Fatal(err)
	}
	data, err := b.ReadFile(ctx, "table/day=1/part")
	fmt.Println("after:", string(data), err)
	// Output:
	// first attempt: the output is that of the first
	// second attempt: the output is that of the first
	// before: not found
	// after: first <nil>
}

// A file's content, straight from memory, without a copy.
func ExampleFile_Map() {
	defer daemon()()
	ctx := context.Background()
	c, err := client.Dial(ctx, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "scratch"}); err != nil {
		log.Fatal(err)
	}
	b := c.Buffer("scratch")
	if err := b.WriteFile(ctx, "data", []byte("head body tail"), 0o644); err != nil {
		log.Fatal(err)
	}
	f, err := b.Open(ctx, "data")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	m, err := f.Map(5, 4)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Release()
	if err := m.Verify(); err != nil { // against the checksum that it was written with
		log.Fatal(err)
	}
	for _, p := range m.Slices() {
		fmt.Println(string(p))
	}
	// Output: body
}

// Errors have kinds, and those of package fs match too.
func ExampleKindOf() {
	defer daemon()()
	ctx := context.Background()
	c, err := client.Dial(ctx, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "scratch"}); err != nil {
		log.Fatal(err)
	}
	_, err = c.Buffer("scratch").ReadFile(ctx, "none")
	fmt.Println(client.KindOf(err))
	fmt.Println(errors.Is(err, client.ErrNotFound), errors.Is(err, fs.ErrNotExist))
	// Output:
	// not found
	// true true
}

// A tree that is listed, moved and removed.
func ExampleBuffer_Walk() {
	defer daemon()()
	ctx := context.Background()
	c, err := client.Dial(ctx, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "scratch"}); err != nil {
		log.Fatal(err)
	}
	b := c.Buffer("scratch")
	if err := b.MkdirAll(ctx, "run/1", 0o755); err != nil {
		log.Fatal(err)
	}
	if err := b.WriteFile(ctx, "run/1/out", []byte("12345"), 0o644); err != nil {
		log.Fatal(err)
	}
	if err := b.Rename(ctx, "run/1", "run/final"); err != nil {
		log.Fatal(err)
	}
	for e, err := range b.Walk(ctx, "run") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Path, e.IsDir(), e.Size)
	}
	if err := b.RemoveAll(ctx, "run"); err != nil {
		log.Fatal(err)
	}
	_, err = b.Stat(ctx, "run")
	fmt.Println(client.KindOf(err))
	// Output:
	// run true 0
	// run/final true 0
	// run/final/out false 5
	// not found
}

// The buffer as a file system, for all that reads an fs.FS.
func ExampleBuffer_FS() {
	defer daemon()()
	ctx := context.Background()
	c, err := client.Dial(ctx, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "scratch"}); err != nil {
		log.Fatal(err)
	}
	b := c.Buffer("scratch")
	for _, name := range []string{"a.txt", "b.log", "c.txt"} {
		if err := b.WriteFile(ctx, name, []byte(name), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	names, err := fs.Glob(b.FS(ctx), "*.txt")
	fmt.Println(names, err)
	// Output: [a.txt c.txt] <nil>
}
