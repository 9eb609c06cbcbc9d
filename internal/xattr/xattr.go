// Package xattr encodes the extended attributes of files and directories, and changes them. It is pure, and must never
// depend on their holder.
package xattr

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strings"

	"forebay/internal/bb"
)

// Bounds of user attributes.
const (
	MaxName  = 255     // bytes in a name, as on Linux
	MaxTotal = 8 << 10 // bytes of all attributes of an entry, encoded: names, values and about 3 bytes for each
)

// Prefix begins the names of all attributes that entries have. The kernel's other namespaces (security, system,
// trusted) grant rights. A buffer has none of them.
const Prefix = "user."

// List are the extended attributes of a file or directory, encoded. The zero value is none. They never change,
// since copies of an entry share them. For each attribute, in ascending order of the names:
//
//	name length | name | value length << 1, or 1 if the store has it | value     lengths are varints
type List string

// Attr is one extended attribute.
type Attr struct {
	Name  string // begins with Prefix; any bytes but NUL
	Value string // any bytes
	// Stored: the object of the file's last flush has this value. If the value was set since, or
	// the store cannot keep it, the object does not have it.
	Stored bool
}

// All yields the attributes in the order of their names, up to the first that is malformed.
func (x List) All() iter.Seq[Attr] {
	return func(yield func(Attr) bool) {
		for len(x) > 0 {
			a, rest, ok := x.next()
			if !ok || !yield(a) {
				return
			}
			x = rest
		}
	}
}

// next decodes the first attribute.
func (x List) next() (a Attr, rest List, ok bool) {
	name, _, rest, ok := x.piece(0)
	if !ok {
		return a, "", false
	}
	value, stored, rest, ok := rest.piece(1)
	return Attr{string(name), string(value), stored}, rest, ok
}

// piece decodes a length, with a flag if bits is 1, and so many bytes.
func (x List) piece(bits uint) (piece List, flag bool, rest List, ok bool) {
	head := []byte(x[:min(len(x), binary.MaxVarintLen32)])
	n, used := binary.Uvarint(head)
	length := n >> bits
	if used <= 0 || length > uint64(len(x)-used) {
		return "", false, "", false
	}
	end := used + int(length)
	return x[used:end], bits > 0 && n&1 != 0, x[end:], true
}

// Make encodes attributes, of which the last of a name counts.
func Make(all ...Attr) List {
	all = slices.Clone(all)
	slices.Reverse(all)
	slices.SortStableFunc(all, func(a, b Attr) int { return cmp.Compare(a.Name, b.Name) })
	all = slices.CompactFunc(all, func(a, b Attr) bool { return a.Name == b.Name })
	var b []byte
	for _, a := range all {
		n := uint64(len(a.Value)) << 1
		if a.Stored {
			n |= 1
		}
		b = append(binary.AppendUvarint(b, uint64(len(a.Name))), a.Name...)
		b = append(binary.AppendUvarint(b, n), a.Value...)
	}
	return List(b)
}

// Fit is Make without the attributes with which there would be more than MaxTotal.
func Fit(all ...Attr) List { return List("").With(Make(all...)) }

// With returns the attributes with those of other, whose values count where both have one. Those with which there would
// be more than MaxTotal are left out.
func (x List) With(other List) List {
	for a := range other.All() {
		all := slices.DeleteFunc(slices.Collect(x.All()), func(there Attr) bool { return there.Name == a.Name })
		if now := Make(append(all, a)...); len(now) <= MaxTotal {
			x = now
		}
	}
	return x
}

// Without returns the attributes whose values other ones do not have.
func (x List) Without(other List) List {
	var all []Attr
	for a := range x.All() {
		if value, ok := other.Get(a.Name); !ok || value != a.Value {
			all = append(all, a)
		}
	}
	return Make(all...)
}

// Get returns the value of an attribute, and whether there is one of that name.
func (x List) Get(name string) (value string, ok bool) {
	for a := range x.All() {
		if a.Name == name {
			return a.Value, true
		}
	}
	return "", false
}

// Equal reports whether two have the same names and values.
func (x List) Equal(other List) bool { return x == other || x.Marked(nil) == other.Marked(nil) }

// Marked returns the attributes with Stored as a function decides. nil means never.
func (x List) Marked(stored func(Attr) bool) List {
	if x == "" {
		return x
	}
	all := slices.Collect(x.All())
	for i := range all {
		all[i].Stored = stored != nil && stored(all[i])
	}
	return Make(all...)
}

// MarkedAs returns the attributes with Stored where other ones have the same value.
func (x List) MarkedAs(stored List) List {
	return x.Marked(func(a Attr) bool {
		value, ok := stored.Get(a.Name)
		return ok && value == a.Value
	})
}

// Unstored returns the names of the attributes that the store does not have.
func (x List) Unstored() (names []string) {
	for a := range x.All() {
		if !a.Stored {
			names = append(names, a.Name)
		}
	}
	return names
}

// Check refuses changes that are malformed or over a bound.
func (x List) Check() error {
	invalid := func(why string) error { return bb.E(bb.Invalid, "xattr", "", why) }
	if len(x) > MaxTotal {
		return invalid(fmt.Sprintf("the attributes take %d bytes, at most %d are allowed", len(x), MaxTotal))
	}
	last := ""
	for rest := x; rest != ""; {
		a, after, ok := rest.next()
		switch {
		case !ok:
			return invalid("the attributes are malformed")
		case a.Name <= last:
			return invalid("the attributes are not in order")
		}
		if err := CheckName(a.Name); err != nil {
			return err
		}
		last, rest = a.Name, after
	}
	return nil
}

// CheckName refuses names that no attribute of an entry can have. Those of other namespaces than Prefix are
// Unsupported.
func CheckName(name string) error {
	switch {
	case len(name) > MaxName:
		return bb.E(bb.Invalid, "xattr", "", fmt.Sprintf("a name of %d bytes, at most %d are allowed", len(name), MaxName))
	case !strings.HasPrefix(name, Prefix):
		return bb.E(bb.Unsupported, "xattr", bb.Printable(name), "attributes have names that begin with "+Prefix)
	case len(name) == len(Prefix) || strings.Contains(name, "\x00"):
		return bb.E(bb.Invalid, "xattr", bb.Printable(name), "is no name of an attribute")
	}
	return nil
}

// Op is the kind of a Change.
type Op uint8

// The operations.
const (
	Set     Op = iota // whether or not there is one of that name
	Create            // Exists if there is one
	Replace           // NotFound if there is none
	Remove            // NotFound if there is none
)

// Change is a change of one attribute.
type Change struct {
	Op    Op
	Name  string
	Value string
}

// Apply carries a change out. NotFound and Exists are about the attribute. NoSpace means that there would be more than
// MaxTotal.
func (x List) Apply(c *Change) (List, error) {
	if err := CheckName(c.Name); err != nil {
		return x, err
	}
	_, there := x.Get(c.Name)
	switch {
	case c.Op > Remove:
		return x, bb.E(bb.Unsupported, "xattr", bb.Printable(c.Name), "this release does not support the change")
	case c.Op == Create && there:
		return x, bb.E(bb.Exists, "xattr", bb.Printable(c.Name), "the attribute exists")
	case !there && (c.Op == Replace || c.Op == Remove):
		return x, bb.E(bb.NotFound, "xattr", bb.Printable(c.Name), "there is no such attribute")
	}
	all := slices.Collect(x.All())
	if c.Op == Remove {
		all = slices.DeleteFunc(all, func(a Attr) bool { return a.Name == c.Name })
		return Make(all...), nil
	}
	now := Make(append(all, Attr{Name: c.Name, Value: c.Value})...)
	if len(now) > MaxTotal {
		return x, TooLarge(c.Name, len(now))
	}
	return now, nil
}

// TooLarge returns the error of a change after which the attributes of an entry would take a number of bytes.
func TooLarge(name string, total int) error {
	return bb.E(bb.NoSpace, "xattr", bb.Printable(name), fmt.Sprintf("the attributes would take %d bytes, an entry has at most %d", total, MaxTotal)).
		WithRemedy("remove other attributes, or keep the value in a file")
}
