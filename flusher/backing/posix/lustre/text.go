package lustre

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// String returns the layout in the options of lfs setstripe, which Parse reads: -E (end of a component), -L mdt, -c, -S
// and -p. Defaults of the file system are left out, but for those of a component that follows one with others, as it
// would inherit these: -S 0, -p none.
func (l Layout) String() string {
	var words []string
	var before Component
	for _, c := range l {
		if len(l) > 1 || c.End != 0 {
			end := "-1"
			if c.End != 0 {
				end = bytesText(c.End)
			}
			words = append(words, "-E", end)
		}
		if c.MDT {
			words = append(words, "-L", "mdt")
			continue
		}
		if c.Count != 0 {
			words = append(words, "-c", strconv.Itoa(c.Count))
		}
		if c.StripeSize != 0 || before.StripeSize != 0 {
			words = append(words, "-S", bytesText(c.StripeSize))
		}
		if c.Pool != "" || before.Pool != "" {
			words = append(words, "-p", cmp.Or(c.Pool, noPool))
		}
		before = c
	}
	return strings.Join(words, " ")
}

const noPool = "none"

// maxText bounds the result of String, in bytes.
const maxText = 4096

// IsText reports whether a text may have come from String, from any source.
func IsText(s string) bool {
	return len(s) <= maxText && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// Parse reads a layout as lfs setstripe does: -c COUNT, -S SIZE and -p POOL, and before those of each component of a
// progressive layout -E END. The first may have -L mdt in their place. As there, a component that names no count, size or
// pool has those of the one before (setstripe_args_init_inherit in lustre/utils/lfs.c). Where none names a count, that is
// one target. Unlike there, one that follows -L mdt and names no size has the file system's.
func Parse(text string) (Layout, error) {
	words := strings.Fields(text)
	if len(words) == 0 || len(words)%2 != 0 {
		return nil, fmt.Errorf("%q is not pairs of an option and its value", text)
	}
	l := Layout{{}}
	for i := 0; i < len(words); i += 2 {
		var err error
		if l, err = l.option(i, words[i], words[i+1]); err != nil {
			return nil, err
		}
	}
	for i := range l {
		if l[i].Count == 0 && !l[i].MDT {
			l[i].Count = 1
		}
	}
	return l, l.Check()
}

// option adds the option that is the n-th word of the text.
func (l Layout) option(n int, name, value string) (_ Layout, err error) {
	c := &l[len(l)-1]
	switch name {
	case "-E", "--component-end":
		if n > 0 {
			if c.End == 0 {
				return nil, fmt.Errorf("something follows the component that ends with the file, or -E is not the first option")
			}
			l = append(l, Component{Count: c.Count, StripeSize: c.StripeSize, Pool: c.Pool})
			c = &l[len(l)-1]
		}
		if value != "-1" && !strings.EqualFold(value, "eof") {
			if c.End, err = parseBytes(value); err == nil && c.End == 0 {
				err = fmt.Errorf("a component ends at 0")
			}
		}
	case "-c", "--stripe-count":
		c.Count, err = strconv.Atoi(value)
		if c.Count == 0 {
			err = fmt.Errorf("stripe count %q is no number of targets", value)
		}
	case "-S", "--stripe-size":
		c.StripeSize, err = parseBytes(value)
	case "-p", "--pool":
		if c.Pool = value; value == noPool {
			c.Pool = ""
		}
	case "-L", "--layout":
		switch value {
		case "mdt":
			c.MDT = true
		case "raid0":
		default:
			err = fmt.Errorf("layout %q is neither raid0 nor mdt", value)
		}
	default:
		err = fmt.Errorf("option %q is none of -E, -c, -S, -p, -L", name)
	}
	return l, err
}

var units = []struct {
	name string
	size int64
}{{"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}}

// bytesText writes a number of bytes with the largest unit that leaves no rest, as lfs reads it.
func bytesText(n int64) string {
	for _, u := range units {
		if n != 0 && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// parseBytes reads a number of bytes with the unit K, M or G, in either case, or none.
func parseBytes(text string) (int64, error) {
	unit := int64(1)
	digits := text
	for _, u := range units {
		if rest, ok := strings.CutSuffix(strings.ToUpper(text), u.name); ok {
			digits, unit = rest, u.size
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%q is no size, such as 64M", text)
	}
	return n * unit, nil
}
