// Package protocol has the messages between a daemon and a store worker: requests, replies, and the
// slots of memory that bytes pass through. It must never touch a store, nor assume that a message
// came from a worker that was not taken over. All is bounded and checked.
package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"syscall"
	"time"

	"forebay/flusher/backing"
	"forebay/flusher/backing/posix/lustre"
	"forebay/internal/bb"
	"forebay/internal/xattr"
)

// Op is the operation of a request.
type Op uint8

// The requests.
const (
	OpReply      Op = iota // of any request
	OpOpen                 // open a store: text holds OpenOptions; the reply's text is its identity
	OpGet                  // open an object and read its first bytes; handle 0 in the reply: that was all
	OpRead                 // read from an object: handle
	OpStat                 //
	OpList                 // the first page; handle 0 in the reply: that was all
	OpOthers               // as OpList
	OpTemps                // as OpList: files named as unfinished work
	OpNext                 // the next page: handle
	OpPut                  // begin a file, and if a slot or no byte is given, write and finish it; n in the reply: bytes of the largest write
	OpWrite                // write into a file that was begun: handle
	OpFinish               // handle
	OpCommit               // handle; text in the reply, as in that of any request that commits: posix.Pending.Fewer
	OpRename               //
	OpRemove               //
	OpRemoveIf             // items: the version, and nothing
	OpRenameIf             // items: the version, and the one that it replaces
	OpRemoveTree           //
	OpRemoveDir            //
	OpMakeDir              //
	OpSetMode              //
	OpDiscard              // remove unfinished work of these names
	OpCheck                //
	OpCancel               // end the context of a call; has no reply
	OpClose                // release a handle; has no reply
)

// String names an operation as adaptor posix does in its errors.
func (o Op) String() string {
	switch o {
	case OpOpen:
		return "open backing"
	case OpGet, OpRead:
		return "get"
	case OpStat:
		return "stat"
	case OpList, OpOthers, OpNext:
		return "list"
	case OpTemps, OpDiscard:
		return "sweep"
	case OpPut, OpWrite, OpFinish, OpCommit:
		return "put"
	case OpRename, OpRenameIf:
		return "rename"
	case OpRemove, OpRemoveIf:
		return "remove"
	case OpRemoveTree:
		return "remove tree"
	case OpRemoveDir:
		return "remove directory"
	case OpMakeDir:
		return "make directory"
	case OpSetMode:
		return "change mode"
	case OpCheck:
		return "check"
	}
	return "store worker"
}

// Changes reports whether a request changes names that files have.
func (o Op) Changes() bool {
	switch o {
	case OpRename, OpRenameIf, OpRemove, OpRemoveIf, OpRemoveTree, OpRemoveDir, OpMakeDir, OpSetMode:
		return true
	}
	return false
}

// Flags of messages.
const (
	FlagKeep    = 1 << iota // PutOptions.Keep, DirOptions.Keep
	FlagCommit              // of OpPut and OpFinish: give the file its name as well
	FlagWhole               // of OpPut: the slot holds the whole file
	FlagHolds               // DirOptions.Holds
	FlagDeep                // Within.Deep
	FlagEOF                 // the object ends behind the bytes that were read
	FlagMoved               // of a reply: another directory lies at the root's path than the worker is confined to
	FlagAttrs               // attrs is set
	flagForeign             // of an error: it is backing.ErrForeign
	flagTimed               // attrs.MTime is set
	FlagError               // of a reply: it failed
)

// NoSlot is the slot of a message without one.
const NoSlot = -1

// Message is a request or its reply. All fields cross in this order. Most are zero, which takes a
// byte each.
type Message struct {
	Call   uint64
	Op     Op
	Flags  uint64
	Store  uint64
	Handle uint64
	Off, N int64
	Slot   int64
	Name   string
	Text   string // a new name, an entity tag, options: see Op
	Attrs  backing.Attrs
	Err    RemoteError
	Data   []byte
	Items  []Item
	Names  []string
}

// Item is a line of a listing.
type Item struct {
	Name, ETag string
	Size       int64
	mtime      time.Time
	Mode       fs.FileMode
	Flags      uint64
	Layout     string
	Xattrs     string
}

// Flags of items.
const (
	ItemHasMode = 1 << iota
	itemBare
)

// RemoteError is an error as it crosses: the fields of an *bb.Error, and its number of the kernel.
type RemoteError struct {
	Kind                     uint64
	Op, Path, Reason, Remedy string
	Errno                    uint64
}

// MaxMessage is the size of the largest message in bytes. A packet of a socket is never split.
const MaxMessage = 96 << 10

// MaxPage is the size of a listing's page from which it is sent.
const MaxPage = 32 << 10

// MaxInline bounds the bytes that a message carries itself.
const MaxInline = 32 << 10

// Has reports whether a flag is set.
func (m *Message) Has(flag uint64) bool { return m.Flags&flag != 0 }

// Append appends the encoded message.
func (m *Message) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, m.Call)
	b = append(b, byte(m.Op))
	for _, v := range []uint64{m.Flags, m.Store, m.Handle} {
		b = binary.AppendUvarint(b, v)
	}
	for _, v := range []int64{m.Off, m.N, m.Slot} {
		b = binary.AppendVarint(b, v)
	}
	b = appendString(appendString(b, m.Name), m.Text)
	if m.Has(FlagAttrs) {
		b = binary.AppendUvarint(b, uint64(m.Attrs.Mode))
		b = binary.AppendUvarint(b, uint64(m.Attrs.UID))
		b = binary.AppendUvarint(b, uint64(m.Attrs.GID))
		b = appendString(appendTime(b, m.Attrs.MTime), string(m.Attrs.Xattrs))
	}
	if m.Has(FlagError) {
		b = binary.AppendUvarint(b, m.Err.Kind)
		b = binary.AppendUvarint(b, m.Err.Errno)
		for _, s := range []string{m.Err.Op, m.Err.Path, m.Err.Reason, m.Err.Remedy} {
			b = appendString(b, s)
		}
	}
	b = appendString(b, string(m.Data))
	b = binary.AppendUvarint(b, uint64(len(m.Items)))
	for i := range m.Items {
		b = m.Items[i].append(b)
	}
	b = binary.AppendUvarint(b, uint64(len(m.Names)))
	for _, s := range m.Names {
		b = appendString(b, s)
	}
	return b
}

func (i *Item) append(b []byte) []byte {
	b = appendString(appendString(b, i.Name), i.ETag)
	b = binary.AppendVarint(b, i.Size)
	b = appendTime(b, i.mtime)
	b = binary.AppendUvarint(b, uint64(i.Mode))
	return appendString(appendString(binary.AppendUvarint(b, i.Flags), i.Layout), i.Xattrs)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendTime encodes a time as seconds and nanoseconds. One nanosecond too many is the zero time.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return binary.AppendUvarint(binary.AppendVarint(b, 0), uint64(time.Second))
	}
	return binary.AppendUvarint(binary.AppendVarint(b, t.Unix()), uint64(t.Nanosecond()))
}

// ErrMalformed is the error of a message that cannot be decoded.
var ErrMalformed = errors.New("malformed message")

// Decode decodes a message. It keeps nothing of b.
func (m *Message) Decode(b []byte) error {
	d := decoder{b: b}
	*m = Message{Call: d.uint(), Op: Op(d.byte()), Flags: d.uint(), Store: d.uint(), Handle: d.uint()}
	m.Off, m.N, m.Slot = d.int(), d.int(), d.int()
	m.Name, m.Text = d.string(), d.string()
	if m.Has(FlagAttrs) {
		m.Attrs.Mode = fs.FileMode(d.uint32())
		m.Attrs.UID, m.Attrs.GID = d.uint32(), d.uint32()
		m.Attrs.MTime, m.Attrs.Xattrs = d.time(), xattr.List(d.string())
	}
	if m.Has(FlagError) {
		m.Err = RemoteError{Kind: d.uint(), Errno: d.uint()}
		m.Err.Op, m.Err.Path, m.Err.Reason, m.Err.Remedy = d.string(), d.string(), d.string(), d.string()
	}
	m.Data = []byte(d.string())
	for n := d.count(); n > 0 && d.err == nil; n-- {
		m.Items = append(m.Items, Item{
			Name: d.string(), ETag: d.string(), Size: d.int(), mtime: d.time(), Mode: fs.FileMode(d.uint32()), Flags: d.uint(), Layout: d.string(), Xattrs: d.string(),
		})
	}
	for n := d.count(); n > 0 && d.err == nil; n-- {
		m.Names = append(m.Names, d.string())
	}
	if d.err == nil && len(d.b) > 0 {
		d.err = ErrMalformed
	}
	return d.err
}

type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail() { d.b, d.err = nil, ErrMalformed }

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) uint32() uint32 {
	v := d.uint()
	if v > math.MaxUint32 {
		d.fail()
	}
	return uint32(v)
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count is a number of things of at least a byte each.
func (d *decoder) count() uint64 {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.fail()
		return 0
	}
	return n
}

func (d *decoder) string() string {
	n := d.count()
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *decoder) time() time.Time {
	sec, nsec := d.int(), d.uint()
	if nsec >= uint64(time.Second) {
		return time.Time{}
	}
	return time.Unix(sec, int64(nsec))
}

// SetError puts an error into a reply.
func (m *Message) SetError(err error) {
	m.Flags |= FlagError
	m.Err = RemoteError{Kind: uint64(bb.KindOf(err)), Reason: err.Error()}
	if e := (*bb.Error)(nil); errors.As(err, &e) {
		m.Err.Op, m.Err.Path = e.Op, e.Path
		m.Err.Reason, m.Err.Remedy = e.Why()
	}
	if errors.Is(err, backing.ErrForeign) {
		m.Flags |= flagForeign
	}
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		m.Err.Errno = uint64(errno)
	}
	m.Err.Path, m.Err.Reason = shortened(m.Err.Path), shortened(m.Err.Reason)
}

// shortened bounds the text that an error quotes.
func shortened(s string) string {
	const most = 8 << 10
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// Failure returns the error that a reply stands for, or nil if it is none.
func (m *Message) Failure() error {
	if !m.Has(FlagError) {
		return nil
	}
	kind := bb.Kind(m.Err.Kind)
	if m.Err.Kind == 0 || m.Err.Kind > uint64(bb.Cancelled) {
		kind = bb.Internal
	}
	var reason error = &crossed{m.Err.Reason, syscall.Errno(m.Err.Errno)}
	switch {
	case m.Has(flagForeign):
		reason = backing.ErrForeign
	case m.Err.Reason == "":
		reason = nil
	case m.Err.Reason == io.ErrUnexpectedEOF.Error():
		reason = io.ErrUnexpectedEOF
	}
	return &bb.Error{Kind: kind, Op: m.Err.Op, Path: m.Err.Path, Err: reason, Remedy: m.Err.Remedy}
}

// crossed is a reason that a worker gave, with its number of the kernel.
type crossed struct {
	reason string
	errno  syscall.Errno
}

func (c *crossed) Error() string { return c.reason }

func (c *crossed) Unwrap() error {
	if c.errno == 0 {
		return nil
	}
	return c.errno
}

// ItemOf returns the line of an object.
func ItemOf(o *backing.Object) Item {
	i := Item{Name: o.Name, ETag: o.ETag, Size: o.Size, mtime: o.MTime, Mode: o.Mode, Layout: o.Layout, Xattrs: string(o.Xattrs)}
	if o.HasMode {
		i.Flags = ItemHasMode
	}
	return i
}

// Object returns the object that a line is of.
func (i *Item) Object() backing.Object {
	return backing.Object{Name: i.Name, ETag: i.ETag, Size: i.Size, MTime: i.mtime, Mode: i.Mode, HasMode: i.Flags&ItemHasMode != 0, Layout: i.Layout, Xattrs: xattr.List(i.Xattrs)}
}

// ItemOfVersion returns a line that holds a version.
func ItemOfVersion(v backing.Version) Item { return Item{ETag: v.ETag, Size: v.Size} }

// Version returns the version that a line holds.
func (i *Item) Version() backing.Version { return backing.Version{ETag: i.ETag, Size: i.Size} }

// ItemOfOther returns the line of an item that is no object.
func ItemOfOther(o *backing.Other) Item {
	i := Item{Name: o.Name, mtime: o.MTime, Mode: o.Mode, Xattrs: string(o.Xattrs)}
	if o.Bare {
		i.Flags = itemBare
	}
	return i
}

// Other returns the item of a line that is no object.
func (i *Item) Other() backing.Other {
	return backing.Other{Name: i.Name, Mode: i.Mode, MTime: i.mtime, Bare: i.Flags&itemBare != 0, Xattrs: xattr.List(i.Xattrs)}
}

// One returns the only item of a reply.
func (m *Message) One() (*Item, error) {
	if len(m.Items) != 1 {
		return nil, fmt.Errorf("%w: %d items instead of one", ErrMalformed, len(m.Items))
	}
	return &m.Items[0], nil
}

// OpenOptions is the part of posix.Options that OpOpen carries.
type OpenOptions struct {
	Root     []byte // bytes, since a path in it need be no text
	Instance bb.InstanceID
	Life     uint64
	Layouts  []lustre.Rule
	Mark     string
}

// Command is the hidden argument with which a binary is a store worker.
const Command = "store-worker"
