package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"forebay/client"
	"forebay/internal/clustertest"
)

// The writers of TestStoppedWriters.

const (
	stoppedEnv   = "FOREBAY_TEST_STOPPED" // the daemon's socket and the writer's directory
	stoppedNames = 8                      // of each, written over again and again
)

// writeUntilTold writes file after file until its input ends. It prints a line once it is
// connected, and the number of each closed file.
func writeUntilTold(ctx context.Context, socket, dir string) error {
	c, err := client.Dial(ctx, client.Options{Address: "unix://" + socket, RetryFor: 2 * time.Minute})
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Println("connected")
	var told sync.WaitGroup
	end := make(chan struct{})
	told.Go(func() { _, _ = io.Copy(io.Discard, os.Stdin); close(end) })
	for file := 0; ; file++ {
		select {
		case <-end:
			return nil
		default:
		}
		// A commit whose answer went with the daemon may be carried out or not. It is done again.
		err := client.ErrUnknownOutcome
		for errors.Is(err, client.ErrUnknownOutcome) {
			err = writeStopped(ctx, c, fmt.Sprintf("%s/%d", dir, file%stoppedNames), dir, file)
		}
		if err != nil {
			return err
		}
		fmt.Println(file)
	}
}

func writeStopped(ctx context.Context, c *client.Client, name, dir string, file int) error {
	f, err := c.Buffer("stops").Create(ctx, name)
	if err != nil {
		return err
	}
	content := stoppedContent(dir, file)
	for len(content) > 0 {
		n := min(len(content), 300_000)
		if file%3 == 0 {
			var mem []byte
			if mem, err = f.Reserve(n); err == nil {
				copy(mem, content[:n])
				err = f.Publish(n)
			}
		} else {
			_, err = f.Write(content[:n])
		}
		if err != nil {
			return err
		}
		content = content[n:]
	}
	return f.Close()
}

func stoppedContent(dir string, file int) []byte {
	return clustertest.Content(uint64(dir[len(dir)-1])<<32|uint64(file), []int{6_000_000, 200_000, 2_500_000}[file%3]+file)
}
