package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"forebay/cmd/bbctl/app"
	"forebay/cmd/bbctl/layout"
)

// logStatus is the log of a buffer's namespace, which daemons share, as one of them has it.
type logStatus struct {
	Buffer string     `json:"buffer"`
	Owner  string     `json:"owner"`
	HeldBy []string   `json:"held_by"`
	Unheld bool       `json:"unheld"`
	Lost   *time.Time `json:"lost"`
	Since  *time.Time `json:"since"` // at the owner; older daemons do not report it, nor the leases
	Leases struct {
		Held    int     `json:"held"`
		Granted uint64  `json:"granted"`
		Revoked uint64  `json:"revoked"`
		Silent  uint64  `json:"silent"`
		Waited  float64 `json:"silent_seconds"`
	} `json:"leases"`
}

// logsOf returns each log as its owner has it (the newest, if two call themselves that), or another node where the owner does
// not answer, by buffers.
func logsOf(nodes []NodeView) (all []logStatus) {
	logs := map[string]logStatus{}
	for i := range nodes {
		if nodes[i].Status == nil {
			continue
		}
		for _, l := range nodes[i].Status.NATS.Logs {
			if known, is := logs[l.Buffer]; !is || l.better(known) {
				logs[l.Buffer] = l
			}
		}
	}
	for _, buffer := range slices.Sorted(maps.Keys(logs)) {
		all = append(all, logs[buffer])
	}
	return all
}

// better reports whether l tells more about a log than what another node has said.
func (l *logStatus) better(than logStatus) bool {
	if l.Since == nil || than.Since == nil {
		return l.Since != nil || than.Since == nil && than.Owner == ""
	}
	return l.Since.After(*than.Since)
}

// logTable returns the table of logs that daemons share, or nothing if there are none.
func logTable(v layout.View, nodes []NodeView, now time.Time) []string {
	columns := []layout.Column{
		{Head: "LOG OF"},
		{Head: "OWNER"},
		{Head: "FOR", Spare: 2},
		{Head: "HELD BY", Spare: 1},
		{Head: "LEASES", Spare: 3},
		{Head: "GRANTED", Spare: 6},
		{Head: "REVOKED", Spare: 5},
		{Head: "SILENT", Spare: 4},
	}
	var rows [][]layout.Cell
	for _, l := range logsOf(nodes) {
		row := []layout.Cell{{Text: l.Buffer}, {Text: orDash(l.Owner)}}
		if l.Since == nil {
			for range columns[len(row):] {
				row = append(row, layout.Cell{Text: "-"})
			}
			rows = append(rows, row)
			continue
		}
		silent, look := "0", layout.Plain
		if l.Leases.Silent > 0 {
			silent, look = fmt.Sprintf("%d in %s", l.Leases.Silent, app.Age(l.Leases.Waited)), layout.Warning
		}
		rows = append(rows, append(row,
			layout.Cell{Text: app.Age(now.Sub(*l.Since).Seconds())}, layout.Cell{Text: orDash(strings.Join(l.HeldBy, ","))},
			layout.Cell{Text: fmt.Sprint(l.Leases.Held)}, layout.Cell{Text: fmt.Sprint(l.Leases.Granted)}, layout.Cell{Text: fmt.Sprint(l.Leases.Revoked)},
			layout.Cell{Text: silent, Style: look}))
	}
	if len(rows) == 0 {
		return nil
	}
	return v.Table(columns, rows)
}
