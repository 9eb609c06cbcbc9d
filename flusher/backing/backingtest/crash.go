package backingtest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"forebay/flusher/backing"
)

const (
	crashURL  = "FOREBAY_TEST_CRASH_URL"
	crashName = "FOREBAY_TEST_CRASH_NAME"
	crashSize = "FOREBAY_TEST_CRASH_SIZE"
	halfWay   = "half way"
)

// Main is called by a package's TestMain. In a process that Kill has started, it begins a Put with
// the store that open returns, and waits in its middle to be killed. Otherwise it runs the tests.
func Main(m *testing.M, open func(url string) (backing.Store, error)) int {
	url := os.Getenv(crashURL)
	if url == "" {
		return m.Run()
	}
	fmt.Fprintln(os.Stderr, putHalf(url, open))
	return 1
}

func putHalf(url string, open func(url string) (backing.Store, error)) error {
	s, err := open(url)
	if err != nil {
		return err
	}
	size, err := strconv.ParseInt(os.Getenv(crashSize), 10, 64)
	if err != nil {
		return err
	}
	var once sync.Once
	src := &hookSource{backing.NewBytes(Data(size, 1)), size / 2, func() error {
		once.Do(func() {
			time.Sleep(200 * time.Millisecond) // let the parts before be written
			fmt.Println(halfWay)
		})
		select {} // until killed
	}}
	_, err = s.Put(context.Background(), os.Getenv(crashName), src, backing.PutOptions{})
	return fmt.Errorf("the put ended: %w", err)
}

// Kill runs this test binary again, which puts size bytes under a name. When that is half done,
// Kill kills it with SIGKILL.
func Kill(t *testing.T, url, name string, size int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), WaitTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), crashURL+"="+url, crashName+"="+name, crashSize+"="+strconv.FormatInt(size, 10))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	reached := lines.Scan() && lines.Text() == halfWay
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() // reports that it was killed
	if !reached {
		t.Fatal("the process did not get half way through its put")
	}
}
