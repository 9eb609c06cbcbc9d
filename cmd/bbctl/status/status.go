package status

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
	"forebay/cmd/bbctl/files"
	"forebay/cmd/bbctl/jobs"
	"forebay/cmd/bbctl/layout"
	"forebay/internal/bb"
)

// hungWorker is a store worker that does not answer, or does not end.
type hungWorker struct {
	UID  uint32  `json:"uid"`
	Root string  `json:"root"`
	For  float64 `json:"for"` // seconds
}

// Daemon is the part of the daemon's status that is printed for people. --json prints all of it. See
// docs/operations.md.
type Daemon struct {
	Node     string         `json:"node"`
	Version  string         `json:"version"`
	State    string         `json:"state"`
	Since    time.Time      `json:"since"`
	Admin    string         `json:"admin"`
	Memory   Tier           `json:"memory"`
	Disk     Tier           `json:"disk"`
	Buffers  []bufferStatus `json:"buffers"`
	Sessions []struct {
		Path string `json:"path"`
	} `json:"sessions"`
	Waiting struct {
		Writers int     `json:"writers"`
		Longest float64 `json:"longest"`

		For map[string]int `json:"for"`
	} `json:"waiting"`
	NATS struct {
		Connected bool              `json:"connected"`
		URL       string            `json:"url"`
		Trouble   *namespaceTrouble `json:"trouble"` // older daemons do not report it
		Logs      []logStatus       `json:"logs"`    // nor these
	} `json:"nats"`
	StoreWorkers struct { // older daemons do not report them
		Hanging []hungWorker `json:"hanging"`
	} `json:"store_workers"`
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
	SetAside []setAside `json:"set_aside"` // older daemons do not report them
}

// setAside is a buffer whose namespace the daemon could not read.
type setAside struct {
	Buffer string `json:"buffer"`
	Files  int    `json:"files"`
	Bytes  int64  `json:"bytes"`
	Dirty  int64  `json:"dirty"`
	Reason string `json:"reason"`
	Remedy string `json:"remedy"`
}

// Line names the buffer, with the reason and its files in memory.
func (a *setAside) Line() string {
	return fmt.Sprintf("%s: %s; memory holds %s of %s, %s of them dirty", a.Buffer, app.OneLine(a.Reason), bb.Count(a.Files, "file"), app.Size(a.Bytes), app.Size(a.Dirty))
}

// namespaceTrouble is the reason why the namespace does not answer.
type namespaceTrouble struct {
	Since  time.Time `json:"since"`
	For    float64   `json:"for"`
	Reason string    `json:"reason"`
	Remedy string    `json:"remedy"`
}

func (t *namespaceTrouble) Line() string {
	return fmt.Sprintf("the namespace does not answer for %s, since %s: %s", app.Age(t.For), t.Since.Local().Format(time.DateTime), app.OneLine(t.Reason))
}

type bufferStatus struct {
	Name       string `json:"name"`
	State      string `json:"state"`
	Backing    string `json:"backing"`
	Resident   int64  `json:"resident"`
	Dirty      int64  `json:"dirty"`
	OpenFiles  int    `json:"open_files"`
	Queued     int    `json:"queued"`
	Held       int    `json:"held"`
	Conflicts  int    `json:"conflicts"`
	InConflict []struct {
		Path   string `json:"path"`
		Bytes  int64  `json:"bytes"`
		Reason string `json:"reason"`
	} `json:"in_conflict"`
	Rate        float64 `json:"rate"`
	ETA         float64 `json:"eta"`
	OldestDirty float64 `json:"oldest_dirty_age"`
	StoreOps    int     `json:"store_ops_pending"`
	Lacking     int     `json:"under_replicated"`
	stallStatus
	ruledStatus
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
}

type stallStatus struct {
	Stalled      int     `json:"stalled"`
	StalledFor   float64 `json:"stalled_for"`
	OldestFlight float64 `json:"oldest_flight_age"`
}

// ruledStatus counts the files that flush rules keep from the store. Older daemons do not report
// it.
type ruledStatus struct {
	HeldByRule      int   `json:"held_by_rule"`
	Superseded      int   `json:"superseded"`
	SupersededBytes int64 `json:"superseded_bytes"`
	Dropped         int64 `json:"dropped"`
	DroppedBytes    int64 `json:"dropped_bytes"`
}

// storeStatus is how a backing store answers. Older daemons do not report it.
type storeStatus struct {
	State    string    `json:"state"` // answers, failing, silent
	Since    time.Time `json:"since"`
	For      float64   `json:"for"`
	Reason   string    `json:"reason"`
	Attempts int       `json:"attempts"`
	Waiting  int       `json:"waiting"`
	Targets  []string  `json:"targets"`
}

// Line describes a store that does not work. It returns "" if it works.
func (s *storeStatus) Line() string {
	if s == nil {
		return ""
	}
	since := fmt.Sprintf("for %s, since %s", app.Age(s.For), s.Since.Local().Format(time.DateTime))
	switch s.State {
	case "failing":
		return fmt.Sprintf("the store fails %s, %d times so far: %s", since, s.Attempts, app.OneLine(s.Reason))
	case "silent":
		line := fmt.Sprintf("the store has not answered %s: %s, %s", since, bb.Count(s.Waiting, "call waits", "calls wait"), app.OneLine(s.Reason))
		if len(s.Targets) > 0 {
			line += "; no answer from " + app.OneLine(strings.Join(s.Targets, ", "))
		}
		return line
	}
	return ""
}

type Tier struct {
	Capacity  int64 `json:"capacity"`
	Populated int64 `json:"populated"`
	Used      int64 `json:"used"`
	Dirty     int64 `json:"dirty"`
	Clean     int64 `json:"clean"`

	Dir string `json:"dir"` // older daemons do not report it
}

// dialFor dials for a command whose argument names a buffer, or none: "".
func dialFor(ctx context.Context, a *app.App, args []string) (c *client.Client, buffer string, err error) {
	if len(args) > 0 {
		if buffer, err = a.BufferName(ctx, args[0]); err != nil {
			return nil, "", err
		}
	}
	c, err = a.Dial(ctx)
	return c, buffer, err
}

func newStatusCommand(a *app.App) *cobra.Command {
	var (
		job, node string
		watch     bool
		every     time.Duration
	)
	cmd := &cobra.Command{
		Use: "status [BUFFER]", Short: "Show dirty bytes, how fast they drain, and the obstacles", Args: cobra.MaximumNArgs(1),
		Long: `Shows all nodes of the cluster, and what each buffer has on all of them together. A node that
does not answer is shown with its bytes that are not on a store, by the namespace: AWAY is
the sum for a buffer. The last figures of it from gossip have a question mark. STORE is how a
buffer's store answers. A store that fails or does not answer is shown with since when and why.
The last line is the address that answered.

On a terminal no line is wider than it; colours are left out if NO_COLOR is set. --watch uses
the whole terminal and updates again and again: q leaves it, the arrow keys scroll. While the
daemon does not answer, its last status stays, with since when.`,
		Example: "  bbctl status\n  bbctl status --watch\n  bbctl status --node n7\n  bbctl status --job 4711",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case watch && (job != "" || a.JSON):
				return app.Usage("--watch goes with neither --job nor --json")
			case watch && every <= 0:
				return app.Usage("--interval is not above zero")
			case job != "":
				return jobs.JobStatus(a, cmd, job)
			}
			c, name, err := dialFor(cmd.Context(), a, args)
			if err != nil {
				return err
			}
			if watch {
				return watchStatus(cmd.Context(), a, every, func(ctx context.Context) (*status, error) { return askStatus(ctx, c, name, node) })
			}
			s, err := askStatus(cmd.Context(), c, name, node)
			if err != nil {
				return err
			}
			if err := a.Print(s.text, func() { a.PrintLines(s.lines(a.ViewOf(), time.Now())) }); err != nil {
				return err
			}
			if n := s.unexplained(); n > 0 {
				return app.Partly(errors.New("status: " + UnexplainedText(n)))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&job, "job", "", "show a batch job instead: its buffers, nodes, remaining data and figures")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it until q is pressed, on a terminal")
	cmd.Flags().DurationVar(&every, "interval", 2*time.Second, "how often --watch updates")
	cmd.Flags().StringVar(&node, "node", "", "show only the daemon of this node")
	return cmd
}

// status is the content of bbctl status: of the answering daemon, and of the cluster's nodes.
type status struct {
	own   Daemon
	nodes []NodeView      // none: only own is shown
	text  json.RawMessage // all of it

	socket string // the address of the daemon that answered
}

// askStatus requests the status of one node, or ("") of all.
func askStatus(ctx context.Context, c *client.Client, buffer, node string) (*status, error) {
	var (
		s     status
		nodes []json.RawMessage
		err   error
	)
	if node != "" {
		s.text, err = admin.NodeStatus(ctx, c, admin.NodeID(node), buffer)
	} else {
		s.text, nodes, err = admin.ClusterStatus(ctx, c, buffer)
	}
	if err == nil {
		err = json.Unmarshal(s.text, &s.own)
	}
	if err != nil {
		return nil, err
	}
	for _, text := range nodes {
		var n NodeView
		if err := json.Unmarshal(text, &n); err != nil {
			return nil, err
		}
		s.nodes = append(s.nodes, n)
	}
	if node == "" && len(nodes) == 0 {
		if err := s.askGossip(ctx, c); err != nil {
			return nil, err
		}
		if nodes, err = nodesJSON(s.nodes); err != nil {
			return nil, err
		}
	}
	s.socket = c.Server().Address
	if s.text, err = withCluster(s.text, nodes); err == nil {
		s.text, err = withField(s.text, "socket", s.socket)
	}
	return &s, err
}

// askGossip requests the list of nodes from an older daemon, which does not query them.
func (s *status) askGossip(ctx context.Context, c *client.Client) error {
	nodes, err := admin.Nodes(ctx, c)
	if client.KindOf(err) == client.ErrUnsupported {
		return nil // it is alone
	}
	if err != nil {
		return err
	}
	for i := range nodes {
		s.nodes = append(s.nodes, gossipView(&nodes[i], &s.own))
	}
	return nil
}

// gossipView is an older daemon's view of a node.
func gossipView(n *admin.Node, own *Daemon) NodeView {
	last := func(t admin.TierUsage) *lastTier {
		if t.Capacity == 0 {
			return nil
		}
		return &lastTier{t.Capacity, t.Free, t.Dirty}
	}
	v := NodeView{Node: string(n.Name), State: n.State, Since: n.Since, Server: n.Server, Answers: true, Memory: last(n.Memory), Disk: last(n.Disk)}
	switch n.State {
	case "dead", "left", "unknown", "suspect":
		v.Answers = false
		v.Reason = "the daemon is " + n.State
		v.HoldsUnknown = "node " + own.Node + " is too old to count it: see bbctl node forget " + v.Node + " --dry-run"
	}
	switch {
	case v.Node == own.Node:
		v.Status = own
	case v.Answers:
		v.Reason = "not asked, since node " + own.Node + " is too old to: the files of its buffers are left out"
	}
	return v
}

func nodesJSON(nodes []NodeView) (list []json.RawMessage, err error) {
	for i := range nodes {
		n := nodes[i]
		n.Status = nil // the daemon's own is there already
		text, err := json.Marshal(&n)
		if err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, nil
}

// withCluster adds the nodes to a daemon's status.
func withCluster(text json.RawMessage, nodes []json.RawMessage) (json.RawMessage, error) {
	if len(nodes) == 0 {
		return text, nil
	}
	return withField(text, "cluster", nodes)
}

// withField adds a field to a JSON object.
func withField(text json.RawMessage, name string, value any) (json.RawMessage, error) {
	field, err := json.Marshal(map[string]any{name: value})
	if err != nil {
		return nil, err
	}
	text = bytes.TrimSuffix(bytes.TrimSpace(text), []byte("}"))
	return slices.Concat(text, []byte(","), field[1:]), nil
}

// lines are the output for people. A cluster of one is shown as a daemon alone.
func (s *status) lines(v layout.View, now time.Time) (lines []string) {
	if len(s.nodes) == 0 || len(s.nodes) == 1 && s.nodes[0].Node == s.own.Node {
		lines = s.own.single(v)
	} else {
		lines = clusterLines(v, s.own.Node, s.nodes, now)
	}
	if s.socket == "" {
		return lines
	}
	return append(lines, v.Lines(layout.Message{Text: "answered over " + s.socket})...)
}

// unexplained counts the files with dirty bytes that no entry explains, on all nodes.
func (s *status) unexplained() (n int) {
	if len(s.nodes) == 0 {
		return s.own.Unexplained()
	}
	for i := range s.nodes {
		if of := s.nodes[i].Status; of != nil {
			n += of.Unexplained()
		}
	}
	return n
}

// inConflict returns the files of a buffer that are in conflict, on all nodes, as far as they are named, and their number.
func (s *status) inConflict(buffer string) (list []files.EntryJSON, n int) {
	of := []*Daemon{&s.own}
	if len(s.nodes) > 0 {
		of = nil
		for i := range s.nodes {
			if s.nodes[i].Status != nil {
				of = append(of, s.nodes[i].Status)
			}
		}
	}
	for _, d := range of {
		for i := range d.Buffers {
			if b := &d.Buffers[i]; b.Name == buffer {
				n += b.Conflicts
				for _, c := range b.InConflict {
					list = append(list, files.EntryJSON{Path: c.Path, Type: bb.TypeFile.String(), Size: c.Bytes, State: "conflict", Reason: c.Reason})
				}
			}
		}
	}
	return list, n
}

// LostChanges has a line for each log that has lost acknowledged changes.
func (s *Daemon) LostChanges() (lines []string) {
	for _, l := range s.NATS.Logs {
		if l.Lost != nil {
			lines = append(lines, fmt.Sprintf("%s: since %s, changes of names that were acknowledged before are lost: what was renamed or removed then may be as it was before", l.Buffer, l.Lost.Local().Format(time.DateTime)))
		}
	}
	return lines
}

// Unheld has a line for each log that this daemon owns and no other one holds.
func (s *Daemon) Unheld() (lines []string) {
	for _, l := range s.NATS.Logs {
		if l.Unheld {
			lines = append(lines, fmt.Sprintf("%s: no other daemon holds the last changes of the namespace: they are lost if the namespace's servers lose power and this daemon ends", l.Buffer))
		}
	}
	return lines
}

// Unexplained counts the files with dirty bytes that no entry explains.
func (s *Daemon) Unexplained() (n int) {
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
func (s *Daemon) paths() string {
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

func newLostCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "lost BUFFER", Short: "List the files whose bytes are lost or in conflict, and why", Args: cobra.ExactArgs(1),
		Long: `Lists the files whose bytes are lost, and those that stay in the buffer since the store has a file of
the same name that the buffer did not write (state conflict): bbctl drain --overwrite replaces that file,
bbctl stage-in takes its content, bbctl mv keeps both.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, name, err := dialFor(cmd.Context(), a, args)
			if err != nil {
				return err
			}
			entries, err := c.Buffer(name).Lost(cmd.Context())
			if err != nil {
				return err
			}
			list := []files.EntryJSON{}
			for i := range entries {
				list = append(list, files.DescribeEntry(&entries[i]))
			}
			st, err := askStatus(cmd.Context(), c, name, "")
			if err != nil {
				return err
			}
			inConflict, conflicts := st.inConflict(name)
			list = append(list, inConflict...)
			return a.Print(list, func() {
				for _, e := range list {
					fmt.Fprintf(a.Out, "%s  %s  %s\n", bb.Printable(e.Path), app.Size(e.Size), e.Reason)
				}
				fmt.Fprintln(a.Out, bb.Count(len(entries), "file is", "files are"), "lost")
				if conflicts > 0 {
					fmt.Fprintln(a.Out, bb.Count(conflicts, "file is", "files are"), "in conflict with files of the store that the buffer did not write")
				}
			})
		},
	}
}

func newEventsCommand(a *app.App) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use: "events [BUFFER]", Short: "Print events as they happen", Args: cobra.MaximumNArgs(1),
		Long:    "Prints events of files and buffers from now on. Without -f it ends after the first event.",
		Example: "  bbctl events -f ckpt --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, name, err := dialFor(cmd.Context(), a, args)
			if err != nil {
				return err
			}
			for e, err := range admin.Events(cmd.Context(), c, name) {
				if err != nil {
					return err
				}
				if err := printEvent(a, &e); err != nil {
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

func printEvent(a *app.App, e *admin.Event) error {
	return a.Print(e, func() {
		fmt.Fprintf(a.Out, "%s  %-13s %s", e.Time.Format(time.TimeOnly), e.Kind, bb.Printable(client.Address{Buffer: e.Buffer, Path: e.Path}.String()))
		if e.Bytes > 0 {
			fmt.Fprintf(a.Out, "  %s", app.Size(e.Bytes))
		}
		if e.Reason != "" {
			fmt.Fprintf(a.Out, "  (%s)", e.Reason)
		}
		fmt.Fprintln(a.Out)
	})
}

// UnexplainedText has the number of files whose dirty bytes have no entry.
func UnexplainedText(n int) string {
	return bb.Count(n, "file has", "files have") + " dirty bytes that no entry explains"
}
