package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"forebay/client"
	"forebay/internal/bb"
)

// Ask asks the user a question. Only "y" or "yes" is consent.
func (a *App) Ask(question string) bool {
	a.SetHeard() // the wait is for the user from here on
	fmt.Fprint(a.Err, question, " [y/N] ")
	answer, _ := bufio.NewReader(a.In).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

// Refused is the error of a change that the user declined.
func Refused(op, path string) error {
	return &client.Error{Kind: client.ErrCancelled, Op: op, Path: path, Err: errors.New("cancelled: nothing was changed")}
}

// ConfirmUnsaved asks the user before it removes files that are not on the store, at a path and
// below it. Without a terminal, or without such files, there is no question.
func (a *App) ConfirmUnsaved(ctx context.Context, op string, at Found) error {
	if !a.Interactive() {
		return nil
	}
	var files, bytes int64
	err := Unsaved(ctx, at, func(e *client.Entry) error {
		files, bytes = files+1, bytes+e.Size
		return nil
	})
	if err != nil || files == 0 {
		return err
	}
	address := bb.Printable(at.At.String())
	if !a.Ask(fmt.Sprintf("%s holds %s of %s that the store has not. Remove it?", address, Count(files, "file", "files"), Size(bytes))) {
		return Refused(op, address)
	}
	return nil
}

// Unsaved calls fn with each file at a path and below it whose newest content is not on the
// store: those that are dirty, and those that are open.
func Unsaved(ctx context.Context, at Found, fn func(*client.Entry) error) error {
	for e, err := range at.Walk(ctx, at.At.Path) {
		if err == nil && !e.IsDir() && (e.State == client.StateDirty || e.State == client.StateOpen) {
			err = fn(&e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Would prints the effect of a dry run on entries: a verb, a path, and the destination of a copy.
func (a *App) Would(verb, from, to string, bytes int64) error {
	v := struct {
		Would string `json:"would"`
		From  string `json:"path"`
		To    string `json:"to,omitempty"`
		Bytes int64  `json:"bytes"`
	}{verb, from, to, bytes}
	return a.Print(v, func() {
		line := "would " + verb + " " + bb.Printable(from)
		if to != "" {
			line += " to " + bb.Printable(to)
		}
		fmt.Fprintln(a.Out, line)
	})
}
