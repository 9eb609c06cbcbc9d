package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"forebay/cmd/bbctl/app"
	"forebay/cmd/bbctl/layout"
	"forebay/internal/bb"
)

// NodeView is the answering daemon's view of one node of a cluster.
type NodeView struct {
	Node         string    `json:"node"`
	State        string    `json:"state"`
	Since        time.Time `json:"since"`
	Server       string    `json:"server"`
	Answers      bool      `json:"answers"`
	Reason       string    `json:"reason"`
	Memory       *lastTier `json:"memory"` // as gossip had it last
	Disk         *lastTier `json:"disk"`
	Status       *Daemon   `json:"status"`
	Holds        []holding `json:"holds"`
	HoldsUnknown string    `json:"holds_unknown"`
}

type lastTier struct {
	Capacity int64 `json:"capacity"`
	Free     int64 `json:"free"`
	Dirty    int64 `json:"dirty"`
}

// holding counts the files of a node that does not answer, and those not on a store.
type holding struct {
	Buffer  string `json:"buffer"`
	Files   int64  `json:"files"`
	Bytes   int64  `json:"bytes"`
	Open    int64  `json:"open"`
	Seconds int64  `json:"seconds"`
}

// single returns the lines of one daemon's status.
func (s *Daemon) single(v layout.View) []string {
	lines := v.Lines(layout.Message{Text: fmt.Sprintf("node %s, %s since %s, version %s, admin http://%s",
		s.Node, s.State, s.Since.Format(time.DateTime), s.Version, s.Admin)})
	for _, t := range []struct {
		name string
		tier Tier
	}{{"memory", s.Memory}, {"disk", s.Disk}} {
		if t.tier.Capacity > 0 {
			lines = append(lines, v.Lines(layout.Message{Text: fmt.Sprintf("%-7s %s of %s used, %s dirty, %s clean, %s ready", t.name+":",
				app.Size(t.tier.Used), app.Size(t.tier.Capacity), app.Size(t.tier.Dirty), app.Size(t.tier.Clean), app.Size(t.tier.Populated))})...)
		}
	}
	if len(s.Sessions) > 0 {
		lines = append(lines, v.Lines(layout.Message{Text: "sessions: " + s.paths()})...)
	}
	lines = append(lines, messageLines(v, "", s.messages())...)
	one := []NodeView{{Node: s.Node, Answers: true, Status: s}}
	lines = append(lines, bufferTable(v, bufferRows(one))...)
	lines = append(lines, logTable(v, one, time.Now())...)
	return append(lines, messageLines(v, "", s.bufferMessages())...)
}

// messageLines returns lines that begin with a node's name, if there is one.
func messageLines(v layout.View, node string, all []layout.Message) (lines []string) {
	for _, m := range all {
		if node != "" {
			m.Text = node + ": " + m.Text
		}
		lines = append(lines, v.Lines(m)...)
	}
	return lines
}

// messages are the lines about a daemon, but for its buffers.
func (s *Daemon) messages() (all []layout.Message) {
	add := func(st layout.Style, format string, args ...any) {
		all = append(all, layout.Message{Text: fmt.Sprintf(format, args...), Style: st})
	}
	if s.Waiting.Writers > 0 {
		add(layout.Warning, "%s for room, the longest for %s%s", bb.Count(s.Waiting.Writers, "writer waits", "writers wait"), app.Age(s.Waiting.Longest), s.WaitsFor())
	}
	if t := s.NATS.Trouble; t != nil {
		add(layout.Bad, "%s; %s", t.Line(), app.OneLine(t.Remedy))
	} else if !s.NATS.Connected {
		add(layout.Bad, "the namespace's server %s cannot be reached", s.NATS.URL)
	}
	for _, line := range s.LostChanges() {
		add(layout.Bad, "%s", line)
	}
	for _, line := range s.Unheld() {
		add(layout.Warning, "%s", line)
	}
	if hung := s.StoreWorkers.Hanging; len(hung) > 0 {
		longest := slices.MaxFunc(hung, func(a, b hungWorker) int { return cmp.Compare(a.For, b.For) })
		add(layout.Warning, "%s, the longest for %s: of uid %d in %s", bb.Count(len(hung), "store worker hangs", "store workers hang"), app.Age(longest.For), longest.UID, bb.Printable(longest.Root))
	}
	for _, f := range s.Foreign {
		add(layout.Bad, "foreign  %s: %s of node %s, namespace %s", f.Path, app.Size(f.Bytes), f.Node, f.Namespace)
	}
	for _, w := range s.WithoutBuffer {
		add(layout.Bad, "%s: memory holds %s of %s, and the namespace does not have the buffer: %s", w.Buffer, bb.Count(w.Files, "file"), app.Size(w.Bytes), w.Remedy)
	}
	for _, a := range s.SetAside {
		add(layout.Bad, "%s; %s", a.Line(), app.OneLine(a.Remedy))
	}
	for _, d := range s.Damaged {
		add(layout.Bad, "damaged: %s", d)
	}
	return all
}

// bufferMessages are the lines about obstacles of a daemon's buffers.
func (s *Daemon) bufferMessages() (all []layout.Message) {
	for i := range s.Buffers {
		b := &s.Buffers[i]
		add := func(st layout.Style, format string, args ...any) {
			all = append(all, layout.Message{Text: b.Name + ": " + fmt.Sprintf(format, args...), Style: st})
		}
		if line := b.Store.Line(); line != "" {
			add(layout.Bad, "%s", line)
		}
		if e := b.LastError; e != nil {
			add(layout.Warning, "last failure %s ago, attempt %d: %s", app.Age(time.Since(e.At).Seconds()), e.Attempts, app.OneLine(e.Reason))
		}
		for _, u := range b.Unexplained {
			add(layout.Bad, "file %s (%s) has %s of dirty bytes that no entry explains: %s", u.File, orDash(bb.Printable(u.Path)), app.Size(u.Bytes), u.Reason)
		}
		if b.Stalled > 0 {
			oldest := ""
			if b.OldestFlight > 0 { // else the daemon is older
				oldest = fmt.Sprintf("; the oldest began %s ago", app.Age(b.OldestFlight))
			}
			add(layout.Warning, "%s for the store, which has not answered for %s%s", bb.Count(b.Stalled, "flush waits", "flushes wait"), app.Age(b.StalledFor), oldest)
		}
		if b.Lacking > 0 {
			add(layout.Warning, "%s", bb.Count(b.Lacking, "file of this node lacks its second copy", "files of this node lack their second copy"))
		}
		if b.Conflicts > 0 {
			add(layout.Warning, "%s in conflict with files of the store that the buffer did not write: bbctl drain %s lists them", bb.Count(b.Conflicts, "file is", "files are"), b.Name)
		}
		if b.HeldByRule > 0 {
			text := bb.Count(b.HeldByRule, "file is", "files are") + " held back by a flush rule"
			if b.Superseded > 0 {
				text += fmt.Sprintf(", %d of them superseded (%s)", b.Superseded, app.Size(b.SupersededBytes))
			}
			add(layout.Plain, "%s", text)
		}
		if b.Dropped > 0 {
			add(layout.Plain, "%s of %s dropped from memory: newer steps have superseded them", bb.Count(b.Dropped, "file"), app.Size(b.DroppedBytes))
		}
		if b.Held > 0 {
			add(layout.Plain, "%s held back by a keep pattern", bb.Count(b.Held, "name is", "names are"))
		}
	}
	return all
}

// bufferRow is one buffer on all nodes.
type bufferRow struct {
	name, state, backing string
	dirty, resident      int64
	away                 int64 // bytes that nodes hold which do not answer, and no store has
	queued               int
	rate, eta, oldest    float64
	endless              bool   // a node has dirty bytes and no rate
	store                string // the worst of the nodes'; "": not known
}

// storeOrder has the worst state of a store last.
var storeOrder = []string{"", "answers", "failing", "silent"}

// bufferRows adds up the nodes' parts of each buffer, by name.
func bufferRows(nodes []NodeView) []bufferRow {
	rows := make(map[string]*bufferRow)
	row := func(name string) *bufferRow {
		if rows[name] == nil {
			rows[name] = &bufferRow{name: name, state: "-"}
		}
		return rows[name]
	}
	for i := range nodes {
		for _, h := range nodes[i].Holds {
			row(h.Buffer).away += h.Bytes
		}
		if nodes[i].Status == nil {
			continue
		}
		for j := range nodes[i].Status.Buffers {
			b := &nodes[i].Status.Buffers[j]
			row(b.Name).add(b)
		}
	}
	var list []bufferRow
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		list = append(list, *rows[name])
	}
	return list
}

func (r *bufferRow) add(b *bufferStatus) {
	r.state, r.backing = b.State, cmp.Or(b.Backing, r.backing)
	r.dirty += b.Dirty
	r.resident += b.Resident
	r.queued += b.Queued
	r.rate += b.Rate
	r.oldest = max(r.oldest, b.OldestDirty)
	if b.Dirty > 0 {
		r.eta = max(r.eta, b.ETA)
		r.endless = r.endless || b.ETA <= 0
	}
	if b.Store != nil && slices.Index(storeOrder, b.Store.State) > slices.Index(storeOrder, r.store) {
		r.store = b.Store.State
	}
}

// bufferTable returns the table of buffers.
func bufferTable(v layout.View, rows []bufferRow) []string {
	columns := []layout.Column{
		{Head: "BUFFER"},
		{Head: "STATE", Spare: 2},
		{Head: "DIRTY"},
		{Head: "AWAY"},
		{Head: "RESIDENT", Spare: 5},
		{Head: "QUEUED", Spare: 6},
		{Head: "RATE", Spare: 3},
		{Head: "ETA", Spare: 4},
		{Head: "OLDEST DIRTY", Spare: 7},
		{Head: "STORE"},
		{Head: "BACKING", Spare: 1},
	}
	var cells [][]layout.Cell
	away := false
	for i := range rows {
		r := &rows[i]
		eta, oldest := "-", "-"
		if r.dirty > 0 && r.eta > 0 && !r.endless {
			eta = app.Age(r.eta)
		}
		if r.oldest > 0 {
			oldest = app.Age(r.oldest)
		}
		away = away || r.away > 0
		cells = append(cells, []layout.Cell{
			{Text: r.name},
			{Text: r.state},
			{Text: app.Size(r.dirty)},
			{Text: app.Size(r.away), Style: lossStyle(r.away)},
			{Text: app.Size(r.resident)},
			{Text: fmt.Sprint(r.queued)},
			{Text: app.Size(int64(r.rate)) + "/s"},
			{Text: eta},
			{Text: oldest},
			{Text: orDash(r.store), Style: storeStyle(r.store)},
			{Text: r.backing},
		})
	}
	if !away {
		const at = 3
		columns = slices.Delete(columns, at, at+1)
		for i := range cells {
			cells[i] = slices.Delete(cells[i], at, at+1)
		}
	}
	return v.Table(columns, cells)
}

func lossStyle(bytes int64) layout.Style {
	if bytes > 0 {
		return layout.Bad
	}
	return layout.Plain
}

func storeStyle(state string) layout.Style {
	switch state {
	case "answers":
		return layout.Good
	case "failing", "silent":
		return layout.Bad
	}
	return layout.Plain
}

// clusterLines returns the lines of a cluster's status. Asked is the node of the answering daemon.
func clusterLines(v layout.View, asked string, nodes []NodeView, now time.Time) []string {
	silent := 0
	for i := range nodes {
		if !nodes[i].Answers && nodes[i].State != "left" {
			silent++
		}
	}
	head, look := fmt.Sprintf("cluster of %d nodes, asked at %s", len(nodes), asked), layout.Plain
	if silent > 0 {
		head, look = fmt.Sprintf("cluster of %d nodes, %d without an answer, asked at %s", len(nodes), silent, asked), layout.Bad
	}
	lines := v.Lines(layout.Message{Text: head, Style: look})
	lines = append(lines, nodeTable(v, nodes, now)...)
	for i := range nodes {
		n := &nodes[i]
		lines = append(lines, messageLines(v, n.Node, n.messages(now))...)
		if n.Status != nil {
			lines = append(lines, messageLines(v, n.Node, n.Status.messages())...)
		}
	}
	lines = append(lines, bufferTable(v, bufferRows(nodes))...)
	lines = append(lines, logTable(v, nodes, now)...)
	for i := range nodes {
		if s := nodes[i].Status; s != nil {
			lines = append(lines, messageLines(v, nodes[i].Node, s.bufferMessages())...)
		}
	}
	return lines
}

// nodeTable returns the table of nodes.
func nodeTable(v layout.View, nodes []NodeView, now time.Time) []string {
	columns := []layout.Column{{Head: "NODE"}, {Head: "STATE"}, {Head: "FOR", Spare: 2}, {Head: "MEMORY", Spare: 1}, {Head: "USED", Spare: 3}, {Head: "DIRTY"}, {Head: "DISK", Spare: 5}, {Head: "DISK DIRTY", Spare: 4}, {Head: "VERSION", Spare: 6}}
	var rows [][]layout.Cell
	for i := range nodes {
		n := &nodes[i]
		state, look := n.State, layout.Good
		switch {
		case !n.Answers && (n.State == "ready" || n.State == "starting"):
			state, look = "silent", layout.Bad
		case !n.Answers:
			look = layout.Bad
		case n.State != "ready":
			look = layout.Warning
		}
		held := "-"
		if !n.Since.IsZero() {
			held = app.Age(now.Sub(n.Since).Seconds())
		}
		memory, used, dirty := n.memory()
		disk, diskDirty := n.disk()
		rows = append(rows, []layout.Cell{
			{Text: n.Node}, {Text: state, Style: look}, {Text: held}, {Text: memory}, {Text: used}, dirty, {Text: disk}, {Text: diskDirty}, {Text: orDash(n.Server)},
		})
	}
	return v.Table(columns, rows)
}

// memory is how full a node's memory is. Of one that does not answer, its recorded files count as
// dirty.
func (n *NodeView) memory() (capacity, used string, dirty layout.Cell) {
	capacity, used, dirty = "-", "-", layout.Cell{Text: "-"}
	switch {
	case n.Status != nil:
		m := n.Status.Memory
		return app.Size(m.Capacity), app.Size(m.Used), layout.Cell{Text: app.Size(m.Dirty)}
	case n.Memory != nil:
		capacity, dirty.Text = app.Size(n.Memory.Capacity), app.Size(n.Memory.Dirty)+"?"
		used = app.Size(n.Memory.Capacity-n.Memory.Free) + "?"
	}
	if bytes := n.Held(); bytes > 0 || len(n.Holds) > 0 {
		dirty = layout.Cell{Text: app.Size(bytes), Style: layout.Bad}
	}
	return capacity, used, dirty
}

func (n *NodeView) disk() (capacity, dirty string) {
	switch {
	case n.Status != nil && n.Status.Disk.Capacity > 0:
		return app.Size(n.Status.Disk.Capacity), app.Size(n.Status.Disk.Dirty)
	case n.Status == nil && n.Disk != nil:
		return app.Size(n.Disk.Capacity), app.Size(n.Disk.Dirty) + "?"
	}
	return "-", "-"
}

func (n *NodeView) Held() (bytes int64) {
	for _, h := range n.Holds {
		bytes += h.Bytes
	}
	return bytes
}

// messages are the lines about a node that does not answer, or got no request.
func (n *NodeView) messages(now time.Time) (all []layout.Message) {
	if n.Answers {
		if n.Reason != "" {
			all = append(all, layout.Message{Text: app.OneLine(n.Reason), Style: layout.Warning})
		}
		return all
	}
	all = append(all, layout.Message{Text: "does not answer: " + orDash(app.OneLine(n.Reason)), Style: layout.Bad})
	if n.Memory != nil && n.Status == nil && !n.Since.IsZero() {
		all = append(all, layout.Message{Text: "figures with ? are its last report, more than " + app.Age(now.Sub(n.Since).Seconds()) + " ago", Style: layout.Warning})
	}
	if len(n.Holds) > 0 {
		var files, seconds, open int64
		var parts []string
		for _, h := range n.Holds {
			files, seconds, open = files+h.Files, seconds+h.Seconds, open+h.Open
			parts = append(parts, fmt.Sprintf("%s %d of %s", h.Buffer, h.Files, app.Size(h.Bytes)))
		}
		text := fmt.Sprintf("holds %s of %s that no store has: %s", bb.Count(files, "file"), app.Size(n.Held()), strings.Join(parts, ", "))
		if open > 0 {
			text += fmt.Sprintf("; %d of them were being written", open)
		}
		if seconds > 0 {
			text += fmt.Sprintf("; another node has a second copy of %d of them", seconds)
		}
		all = append(all, layout.Message{Text: text, Style: layout.Bad})
	}
	if n.HoldsUnknown != "" {
		all = append(all, layout.Message{Text: "its content may be more: " + app.OneLine(n.HoldsUnknown), Style: layout.Warning})
	}
	return all
}

// WaitsFor names the users for whose data writers wait, as far as the reader may see them.
func (s *Daemon) WaitsFor() string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(s.Waiting.For)) {
		parts = append(parts, fmt.Sprintf("%d for %s", s.Waiting.For[what], what))
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}
