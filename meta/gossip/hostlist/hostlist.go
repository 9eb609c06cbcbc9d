// Package hostlist expands lists of hosts as Slurm writes them. It is pure. It must never query a
// resolver, or Slurm.
package hostlist

import (
	"fmt"
	"strconv"
	"strings"

	"forebay/internal/bb"
)

// maxHosts bounds the hosts of one list. Slurm's own limit on nodes is as large.
const maxHosts = 1 << 16

// Expand reads a list of hosts as Slurm writes it (SLURM_JOB_NODELIST), such as
// "n[001-003,7],gpu1[0-1]-ib", into names, each once, in the list's order. Numbers
// are padded to the width of their range's first.
func Expand(list string) ([]string, error) {
	h := hosts{list: list, seen: map[string]bool{}}
	parts, ok := splitTop(list)
	if !ok {
		return nil, h.fail("brackets do not match")
	}
	for _, part := range parts {
		if err := h.expand("", part); err != nil {
			return nil, err
		}
	}
	return h.names, nil
}

type hosts struct {
	list  string
	names []string
	seen  map[string]bool
	steps int // names made, repeated ones too
}

func (h *hosts) fail(why string) error {
	return bb.E(bb.Invalid, "host list", h.list, why).WithRemedy("write it as Slurm does: n[001-003,7],gpu1[0-1]-ib")
}

// splitTop splits at commas outside brackets. It returns false if brackets are nested or open.
func splitTop(list string) ([]string, bool) {
	var parts []string
	start, inside := 0, false
	for i := range len(list) {
		switch c := list[i]; {
		case c == '[' && inside, c == ']' && !inside:
			return nil, false
		case c == '[':
			inside = true
		case c == ']':
			inside = false
		case c == ',' && !inside:
			parts = append(parts, list[start:i])
			start = i + 1
		}
	}
	return append(parts, list[start:]), !inside
}

// expand adds all names that begin with done and go on with a name or a pattern.
func (h *hosts) expand(done, rest string) error {
	before, after, found := strings.Cut(rest, "[")
	if !found {
		return h.add(done + rest)
	}
	ranges, after, _ := strings.Cut(after, "]")
	for r := range strings.SplitSeq(ranges, ",") {
		lo, hi, isRange := strings.Cut(r, "-")
		if !isRange {
			hi = lo
		}
		from, err1 := strconv.ParseUint(lo, 10, 32)
		to, err2 := strconv.ParseUint(hi, 10, 32)
		if err1 != nil || err2 != nil || from > to || len(lo) > 10 {
			return h.fail(fmt.Sprintf("%q is not a range", r))
		}
		for n := from; n <= to; n++ {
			if err := h.expand(fmt.Sprintf("%s%s%0*d", done, before, len(lo), n), after); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *hosts) add(name string) error {
	if h.steps++; h.steps > maxHosts {
		return h.fail(fmt.Sprintf("names more than %d hosts", maxHosts))
	}
	if name == "" || len(name) > bb.MaxName || strings.ContainsFunc(name, notInHost) {
		return h.fail(fmt.Sprintf("%q is not the name of a host", name))
	}
	if !h.seen[name] {
		h.seen[name] = true
		h.names = append(h.names, name)
	}
	return nil
}

func notInHost(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
}
