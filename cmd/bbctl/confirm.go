package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"forebay/client"
	"forebay/internal/bb"
)

// ask asks the user a question. Only "y" or "yes" is consent.
func (a *app) ask(question string) bool {
	atomic.StoreUint32(&a.heard, 1) // the wait is for the user from here on
	fmt.Fprint(a.err, question, " [y/N] ")
	answer, _ := bufio.NewReader(a.in).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

// refused is the error of what the user does not want.
func refused(op, path string) error {
	return &client.Error{Kind: client.ErrCancelled, Op: op, Path: path, Err: errors.New("cancelled: nothing was changed")}
}

// confirmUnsaved asks before files go that the store has not, at a path and below it. Without a
// terminal, or without such files, there is no question.
func (a *app) confirmUnsaved(ctx context.Context, op string, at found) error {
	if !a.interactive() {
		return nil
	}
	var files, bytes int64
	err := unsaved(ctx, at, func(e *client.Entry) error {
		files, bytes = files+1, bytes+e.Size
		return nil
	})
	if err != nil || files == 0 {
		return err
	}
	address := bb.Printable(at.at.String())
	if !a.ask(fmt.Sprintf("%s holds %s of %s that the store has not. Remove it?", address, count(files, "file", "files"), size(bytes))) {
		return refused(op, address)
	}
	return nil
}

// unsaved calls fn with each file at a path and below it whose newest content is not on the
// store: those that are dirty, and those that are open.
func unsaved(ctx context.Context, at found, fn func(*client.Entry) error) error {
	for e, err := range at.Walk(ctx, at.at.Path) {
		if err == nil && !e.IsDir() && (e.State == client.StateDirty || e.State == client.StateOpen) {
			err = fn(&e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// would prints what a dry run would do to entries: a verb, a path, and for a copy where to.
func (a *app) would(verb, from, to string, bytes int64) error {
	v := struct {
		Would string `json:"would"`
		From  string `json:"path"`
		To    string `json:"to,omitempty"`
		Bytes int64  `json:"bytes"`
	}{verb, from, to, bytes}
	return a.print(v, func() {
		line := "would " + verb + " " + bb.Printable(from)
		if to != "" {
			line += " to " + bb.Printable(to)
		}
		fmt.Fprintln(a.out, line)
	})
}
