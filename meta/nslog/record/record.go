// Package record is the format of the log that a namespace is kept in: its messages, and the encoding of
// entries, operations and outcomes in them. It is drawn here. The package must never do I/O, nor decide about a
// change.
//
// A namespace is a map from keys to values, each with the revision of the change that wrote it:
//
//	e | directory, 8 | name      an entry; that of the root has directory 0 and no name.
//	                             Value: the message Entry of metapb, encoded by hand.
//	o | place, 8                 a rename or removal that the store has yet to follow, by its
//	                             place in the order. Value: the message StoreOp of metapb.
//	s | session, 16 | number, 8  the outcome of a client's change; of number 0, the number
//	                             below which outcomes were given up. Value: see Outcome.
//	x | …                        a record of another package
//
// Numbers are big endian, so that keys of a kind are in the order of their numbers. A message of
// the log is
//
//	0        1        9      10
//	┌────────┬────────┬──────┬──────┐
//	│ format │ CRC-64 │ kind │ body │     the CRC-64/NVME, little endian, covers kind and body
//	└────────┴────────┴──────┴──────┘
//
// and its body, in which a number without a length is a varint, and a node is a length and a name:
//
//	c  claim      owner, 16 | sequence before | first revision | lease | node: all before it
//	              is over
//	d  changes    owner, 16 | sequence before | first revision | lease | node | effects:
//	                  key length | key | 0                            removed, or
//	                  key length | key | value length + 1 | value     stored
//	p  page       number | the items of a page (package pages)
//	m  manifest   the log counts from a sequence on | next revision |
//	              spans: count | first | length … | pages: count | sequence …
//
// Claims and changes lie under one subject, each appended only after the sequence that it names. So
// they are a chain, which only the last claimer can make longer. The lease is for how long after a
// record reads may be answered without another one, by its owner or, after a claim, by those
// before: in milliseconds, 0 if by nobody. The n-th effect of a record has the revision first + 2n,
// and one more if it is about an operation. The lowest bit of a revision shows its kind.
//
// Pages have a subject each, of which the newest message counts. The pages together, and then
// the changes from the manifest's sequence on, in their order and each only where nothing newer
// is there, are the namespace.
package record

import (
	"encoding/binary"
	"fmt"
	"time"

	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// Format is the one of this release.
const Format = 1

// Header is the length of a message before its body.
const Header = 10

// The kinds of messages.
const (
	Claim    = 'c'
	Changes  = 'd'
	Page     = 'p'
	Manifest = 'm'
)

// maxLease bounds leases, since the log could not be claimed before the end of a longer one.
const maxLease = time.Hour

// Owner identifies the daemon that has claimed a log.
type Owner [16]byte

// Begin appends room for the header of a message.
func Begin(b []byte, kind byte) []byte {
	return append(b, Format, 0, 0, 0, 0, 0, 0, 0, 0, kind)
}

// Seal fills in the header of a message that begins with Begin.
func Seal(b []byte) []byte {
	binary.LittleEndian.PutUint64(b[1:], checksum.Update(0, b[Header-1:]))
	return b
}

// Open returns the kind and the body of a message. Its error is of kind Checksum, or
// Unsupported if a newer release has written it.
func Open(b []byte) (kind byte, body []byte, err error) {
	switch {
	case len(b) < Header:
		return 0, nil, garbage("a message of the log", fmt.Sprintf("it has %d bytes", len(b)))
	case b[0] != Format:
		return 0, nil, bb.E(bb.Unsupported, "decode", "a message of the log", fmt.Sprintf("it has format %d, this release reads %d", b[0], Format)).
			WithRemedy("use the release that wrote it, or a newer one")
	case binary.LittleEndian.Uint64(b[1:]) != checksum.Update(0, b[Header-1:]):
		return 0, nil, garbage("a message of the log", "it does not match its checksum")
	}
	return b[Header-1], b[Header:], nil
}

func garbage(what, why string) error { return bb.E(bb.Checksum, "decode", what, why) }

// Head is the beginning of claims and changes.
type Head struct {
	Owner    Owner
	Previous uint64 // the sequence before
	Node     bb.NodeID
	First    uint64        // revision: no later one, and none of the effects, is below
	Lease    time.Duration // whole milliseconds
}

// ClaimMessage returns the message of a claim.
func (h *Head) ClaimMessage() []byte {
	return Seal(h.begin(nil, Claim))
}

// BeginChanges appends the beginning of a message of changes, which effects follow.
func (h *Head) BeginChanges(b []byte) []byte { return h.begin(b, Changes) }

func (h *Head) begin(b []byte, kind byte) []byte {
	b = append(Begin(b, kind), h.Owner[:]...)
	b = binary.AppendUvarint(b, h.Previous)
	b = binary.AppendUvarint(b, h.First)
	b = binary.AppendUvarint(b, uint64(h.Lease.Milliseconds()))
	return append(binary.AppendUvarint(b, uint64(len(h.Node))), h.Node...)
}

// OpenHead reads the head of a claim or of changes, and returns the effects of the latter.
func OpenHead(kind byte, body []byte) (h Head, effects []byte, err error) {
	if len(body) < len(h.Owner) {
		return h, nil, garbage("a record", "it has no owner")
	}
	copy(h.Owner[:], body)
	r := reader{b: body[len(h.Owner):]}
	h.Previous, h.First = r.uvarint(), r.uvarint()
	lease := r.uvarint()
	if lease > uint64(maxLease.Milliseconds()) {
		r.bad = true
	}
	h.Lease = time.Duration(lease) * time.Millisecond
	h.Node = bb.NodeID(r.bytes(r.uvarint()))
	if r.bad || kind != Claim && kind != Changes || kind == Claim && len(r.b) > 0 {
		return h, nil, garbage("a record", "its head is malformed")
	}
	return h, r.b, nil
}

// Effect is one step of a change.
type Effect struct {
	Key      []byte
	Value    []byte // nil: the key is removed
	Revision uint64
}

// AppendStore appends the effect that stores a value.
func AppendStore(b, key, value []byte) []byte {
	b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
	return append(binary.AppendUvarint(b, uint64(len(value))+1), value...)
}

// AppendRemove appends the effect that removes a key.
func AppendRemove(b, key []byte) []byte {
	return append(append(binary.AppendUvarint(b, uint64(len(key))), key...), 0)
}

// Effects calls fn with each effect of changes, of which the first has a revision, and returns the
// next revision. Effects that are malformed are an error of kind Checksum, after those before them.
func Effects(b []byte, first uint64, fn func(Effect) error) (next uint64, err error) {
	r := reader{b: b}
	for ; len(r.b) > 0; first += 2 {
		e := Effect{Key: r.bytes(r.uvarint()), Revision: first}
		if n := r.uvarint(); n > 0 {
			e.Value = r.bytes(n - 1)
		}
		if r.bad || len(e.Key) == 0 {
			return first, garbage("changes", "an effect is malformed")
		}
		e.Revision |= operationBit(e.Key)
		if err := fn(e); err != nil {
			return first, err
		}
	}
	return first, nil
}

// operationBit is the lowest bit of the revisions of operations' keys.
func operationBit(key []byte) uint64 {
	if key[0] == opPrefix {
		return 1
	}
	return 0
}

// OfOperation reports whether a revision is of an operation.
func OfOperation(revision uint64) bool { return revision&1 != 0 }

// Span is revisions of which the log has all changes. Lost ones lie between spans.
type Span struct{ First, Length uint64 }

// Contents is the content of a manifest.
type Contents struct {
	Start uint64 // sequence from which on changes count
	Next  uint64 // revision
	Spans []Span
	Pages []uint64 // sequences of their newest messages; 0: it has none
}

// Message returns the manifest's message.
func (c *Contents) Message() []byte {
	b := Begin(nil, Manifest)
	b = binary.AppendUvarint(b, c.Start)
	b = binary.AppendUvarint(b, c.Next)
	b = binary.AppendUvarint(b, uint64(len(c.Spans)))
	for _, s := range c.Spans {
		b = binary.AppendUvarint(binary.AppendUvarint(b, s.First), s.Length)
	}
	b = binary.AppendUvarint(b, uint64(len(c.Pages)))
	for _, seq := range c.Pages {
		b = binary.AppendUvarint(b, seq)
	}
	return Seal(b)
}

// OpenManifest reads the body of a manifest.
func OpenManifest(body []byte) (*Contents, error) {
	r := reader{b: body}
	c := &Contents{Start: r.uvarint(), Next: r.uvarint()}
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		c.Spans = append(c.Spans, Span{r.uvarint(), r.uvarint()})
	}
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		c.Pages = append(c.Pages, r.uvarint())
	}
	if r.bad || len(r.b) > 0 {
		return nil, garbage("the manifest", "it is malformed")
	}
	return c, nil
}

// BeginPage appends the beginning of the message of a page, which its items follow.
func BeginPage(b []byte, number int) []byte {
	return binary.AppendUvarint(Begin(b, Page), uint64(number))
}

// MaxPages bounds the numbers of pages.
const MaxPages = 1 << 22

// OpenPage reads the body of a page's message.
func OpenPage(body []byte) (number int, items []byte, err error) {
	r := reader{b: body}
	n := r.uvarint()
	if r.bad || n >= MaxPages {
		return 0, nil, garbage("a page", "its number is malformed")
	}
	return int(n), r.b, nil
}

// reader reads numbers and bytes until one is malformed.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}
