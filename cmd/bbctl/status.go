package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/internal/bb"
)

// daemonStatus is the part of the daemon's status that is printed for people; --json
// prints all of it. See docs/operations.md.
type daemonStatus struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	State   string    `json:"state"`
	Since   time.Time `json:"since"`
	Admin   string    `json:"admin"`
	Memory  tier      `json:"memory"`
	Disk    tier      `json:"disk"`
	Buffers []struct {
		Name        string  `json:"name"`
		State       string  `json:"state"`
		Backing     string  `json:"backing"`
		Resident    int64   `json:"resident"`
		Dirty       int64   `json:"dirty"`
		OpenFiles   int     `json:"open_files"`
		Queued      int     `json:"queued"`
		Held        int     `json:"held"`
		Rate        float64 `json:"rate"`
		ETA         float64 `json:"eta"`
		OldestDirty float64 `json:"oldest_dirty_age"`
		StoreOps    int     `json:"store_ops_pending"`
		Lacking     int     `json:"under_replicated"`
		Stalled     int     `json:"stalled"`
		StalledFor  float64 `json:"stalled_for"`
		Unexplained []struct {
			File   string `json:"file"`
			Path   string `json:"path"`
			Bytes  int64  `json:"bytes"`
			Reason string `json:"reason"`
		} `json:"unexplained"`
		LastError *struct {
			Reason   string    `json:"reason"`
			At       time.Time `json:"at"`
			Attempts int       `json:"attempts"`
		} `json:"last_error"`
		Store *storeStatus `json:"store"`
	} `json:"buffers"`
	Sessions []struct {
		Path string `json:"path"`
	} `json:"sessions"`
	Waiting struct {
		Writers int     `json:"writers"`
		Longest float64 `json:"longest"`
	} `json:"waiting"`
	NATS struct {
		Connected bool   `json:"connected"`
		URL       string `json:"url"`
	} `json:"nats"`
	Damaged []string `json:"damaged"`
	Foreign []struct {
		Path      string   `json:"path"`
		Bytes     int64    `json:"bytes"`
		Held      int64    `json:"held"`
		Node      string   `json:"node"`
		Namespace string   `json:"namespace"`
		Buffers   []string `json:"buffers"`
		Remedy    string   `json:"remedy"`
	} `json:"foreign"`
	WithoutBuffer []struct {
		Buffer string `json:"buffer"`
		Files  int    `json:"files"`
		Bytes  int64  `json:"bytes"`
		Remedy string `json:"remedy"`
	} `json:"without_buffer"`
}

// storeStatus is how a backing store answers. Older daemons do not report it.
type storeStatus struct {
	State    string    `json:"state"` // answers, failing, silent
	Since    time.Time `json:"since"`
	For      float64   `json:"for"`
	Reason   string    `json:"reason"`
	Attempts int       `json:"attempts"`
	Waiting  int       `json:"waiting"`
}

// line is what there is to know of a store that does not work; "": it works.
func (s *storeStatus) line() string {
	if s == nil {
		return ""
	}
	since := fmt.Sprintf("for %s, since %s", age(s.For), s.Since.Local().Format(time.DateTime))
	switch s.State {
	case "failing":
		return fmt.Sprintf("the store fails %s, %d times so far: %s", since, s.Attempts, oneLine(s.Reason))
	case "silent":
		return fmt.Sprintf("the store has not answered %s: %d calls wait, %s", since, s.Waiting, oneLine(s.Reason))
	}
	return ""
}

// storeWord is a store's state in a table.
func storeWord(s *storeStatus) string {
	if s == nil {
		return "-"
	}
	return s.State
}

// oneLine is a text of a daemon in one line.
func oneLine(text string) string { return bb.Printable(strings.ReplaceAll(text, "\n", "; ")) }

type tier struct {
	Capacity  int64 `json:"capacity"`
	Populated int64 `json:"populated"`
	Used      int64 `json:"used"`
	Dirty     int64 `json:"dirty"`
	Clean     int64 `json:"clean"`
}

// dialFor dials for a command whose argument names a buffer, or none: "".
func (a *app) dialFor(ctx context.Context, args []string) (c *client.Client, buffer string, err error) {
	if len(args) > 0 {
		buffer = bufferName(args[0])
	}
	c, err = a.dial(ctx)
	return c, buffer, err
}

func newStatusCommand(a *app) *cobra.Command {
	var job string
	cmd := &cobra.Command{
		Use: "status [BUFFER]", Short: "Show what is dirty, how fast it drains, and what is in the way", Args: cobra.MaximumNArgs(1),
		Example: "  bbctl status\n  bbctl status --job 4711",
		RunE: func(cmd *cobra.Command, args []string) error {
			if job != "" {
				return a.jobStatus(cmd, job)
			}
			c, name, err := a.dialFor(cmd.Context(), args)
			if err != nil {
				return err
			}
			text, err := c.Status(cmd.Context(), name)
			if err != nil {
				return err
			}
			var s daemonStatus
			if err := json.Unmarshal(text, &s); err != nil {
				return err
			}
			if err := a.print(text, func() { a.printStatus(&s) }); err != nil {
				return err
			}
			if n := s.unexplained(); n > 0 {
				return partly{fmt.Errorf("status: %d files have dirty bytes that no entry explains", n)}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&job, "job", "", "show what is known of a batch job instead: its buffers, its nodes, what it left, and its figures")
	return cmd
}

func (a *app) printStatus(s *daemonStatus) {
	fmt.Fprintf(a.out, "node %s, %s since %s, version %s, admin http://%s\n", s.Node, s.State, s.Since.Format(time.DateTime), s.Version, s.Admin)
	for _, t := range []struct {
		name string
		tier tier
	}{{"memory", s.Memory}, {"disk", s.Disk}} {
		if t.tier.Capacity > 0 {
			fmt.Fprintf(a.out, "%-7s %s of %s used, %s dirty, %s clean, %s ready\n", t.name+":",
				size(t.tier.Used), size(t.tier.Capacity), size(t.tier.Dirty), size(t.tier.Clean), size(t.tier.Populated))
		}
	}
	if len(s.Sessions) > 0 {
		fmt.Fprintln(a.out, "sessions:", s.paths())
	}
	if s.Waiting.Writers > 0 {
		fmt.Fprintf(a.out, "%d writers wait for room, the longest for %s\n", s.Waiting.Writers, age(s.Waiting.Longest))
	}
	if !s.NATS.Connected {
		fmt.Fprintln(a.out, "the namespace's server", s.NATS.URL, "cannot be reached")
	}
	for _, f := range s.Foreign {
		fmt.Fprintf(a.out, "foreign  %s: %s of node %s, namespace %s\n", f.Path, size(f.Bytes), f.Node, f.Namespace)
	}
	for _, w := range s.WithoutBuffer {
		fmt.Fprintf(a.out, "%s: %d files with %s are in memory, and the namespace does not have the buffer: %s\n", w.Buffer, w.Files, size(w.Bytes), w.Remedy)
	}
	for _, d := range s.Damaged {
		fmt.Fprintln(a.out, "damaged:", d)
	}
	rows := [][]string{{"BUFFER", "STATE", "DIRTY", "RESIDENT", "QUEUED", "RATE", "ETA", "OLDEST DIRTY", "STORE", "BACKING"}}
	for _, b := range s.Buffers {
		eta, oldest := "-", "-"
		if b.Dirty > 0 && b.ETA > 0 {
			eta = age(b.ETA)
		}
		if b.OldestDirty > 0 {
			oldest = age(b.OldestDirty)
		}
		rows = append(rows, []string{
			b.Name, b.State, size(b.Dirty), size(b.Resident), fmt.Sprint(b.Queued), size(int64(b.Rate)) + "/s", eta, oldest, storeWord(b.Store), b.Backing,
		})
	}
	a.table(rows)
	for _, b := range s.Buffers {
		if line := b.Store.line(); line != "" {
			fmt.Fprintf(a.out, "%s: %s\n", b.Name, line)
		}
		if b.LastError != nil {
			fmt.Fprintf(a.out, "%s: last failure %s ago, attempt %d: %s\n", b.Name, age(time.Since(b.LastError.At).Seconds()), b.LastError.Attempts, b.LastError.Reason)
		}
		for _, u := range b.Unexplained {
			fmt.Fprintf(a.out, "%s: file %s (%s) has %s of dirty bytes that no entry explains: %s\n", b.Name, u.File, orDash(bb.Printable(u.Path)), size(u.Bytes), u.Reason)
		}
		if b.Stalled > 0 {
			fmt.Fprintf(a.out, "%s: %d flushes wait for the store, which has not answered for %s\n", b.Name, b.Stalled, age(b.StalledFor))
		}
		if b.Lacking > 0 {
			fmt.Fprintf(a.out, "%s: %d files of this node lack their second copy\n", b.Name, b.Lacking)
		}
		if b.Held > 0 {
			fmt.Fprintf(a.out, "%s: %d names are held back by a keep pattern\n", b.Name, b.Held)
		}
	}
}

// unexplained counts the files with dirty bytes that no entry explains.
func (s *daemonStatus) unexplained() (n int) {
	for i := range s.Buffers {
		n += len(s.Buffers[i].Unexplained)
	}
	for _, w := range s.WithoutBuffer {
		n += w.Files
	}
	return n
}

// orDash is a text, or "-" for none.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// paths counts the sessions by how their bytes travel: "3 shm, 1 tcp".
func (s *daemonStatus) paths() string {
	count := make(map[string]int)
	for _, session := range s.Sessions {
		count[session.Path]++
	}
	parts := make([]string, 0, len(count))
	for _, path := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d %s", count[path], path))
	}
	return strings.Join(parts, ", ")
}

func newLostCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "lost BUFFER", Short: "List the files whose bytes are lost, and why", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, name, err := a.dialFor(cmd.Context(), args)
			if err != nil {
				return err
			}
			entries, err := c.Lost(cmd.Context(), name)
			if err != nil {
				return err
			}
			list := []entryJSON{}
			for i := range entries {
				list = append(list, describeEntry(&entries[i]))
			}
			return a.print(list, func() {
				for _, e := range list {
					fmt.Fprintf(a.out, "%s  %s  %s\n", bb.Printable(e.Path), size(e.Size), e.Reason)
				}
				fmt.Fprintf(a.out, "%d files are lost\n", len(list))
			})
		},
	}
}

func newEventsCommand(a *app) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use: "events [BUFFER]", Short: "Print events as they happen", Args: cobra.MaximumNArgs(1),
		Long:    "Prints what happens to files and buffers from now on. Without -f it ends after the first event.",
		Example: "  bbctl events -f ckpt --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, name, err := a.dialFor(cmd.Context(), args)
			if err != nil {
				return err
			}
			for e, err := range c.Events(cmd.Context(), name) {
				if err != nil {
					return err
				}
				if err := a.printEvent(&e); err != nil {
					return err
				}
				if !follow {
					return nil
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until interrupted")
	return cmd
}

func (a *app) printEvent(e *client.Event) error {
	return a.print(e, func() {
		fmt.Fprintf(a.out, "%s  %-13s %s", e.Time.Format(time.TimeOnly), e.Kind, bb.Printable(client.Address{Buffer: e.Buffer, Path: e.Path}.String()))
		if e.Bytes > 0 {
			fmt.Fprintf(a.out, "  %s", size(e.Bytes))
		}
		if e.Reason != "" {
			fmt.Fprintf(a.out, "  (%s)", e.Reason)
		}
		fmt.Fprintln(a.out)
	})
}
