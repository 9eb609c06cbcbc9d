package asuser

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
	"forebay/internal/bb"
)

// op is what a request asks for.
type op uint8

const (
	opReply      op = iota // of any request
	opOpen                 // open a store: text holds openOptions; the reply's text is its identity
	opGet                  // open an object and read its first bytes; handle 0 in the reply: that was all
	opRead                 // read from an object: handle
	opStat                 //
	opList                 // the first page; handle 0 in the reply: that was all
	opOthers               // as opList
	opTemps                // as opList: what is named as unfinished work
	opNext                 // the next page: handle
	opPut                  // begin a file, and if a slot or no byte is given, write and finish it
	opWrite                // write into a file that was begun: handle
	opFinish               // handle
	opCommit               // handle
	opRename               //
	opRemove               //
	opRemoveIf             // items: the version, and nothing
	opRenameIf             // items: the version, and the one that it replaces
	opRemoveTree           //
	opRemoveDir            //
	opMakeDir              //
	opSetMode              //
	opDiscard              // remove unfinished work of these names
	opCheck                //
	opCancel               // end the context of a call; has no reply
	opClose                // release a handle; has no reply
)

// Flags of messages.
const (
	flagKeep    = 1 << iota // PutOptions.Keep, DirOptions.Keep
	flagCommit              // of opPut and opFinish: give the file its name as well
	flagWhole               // of opPut: the slot holds the whole file
	flagHolds               // DirOptions.Holds
	flagDeep                // Within.Deep
	flagEOF                 // the object ends behind the bytes that were read
	flagMoved               // of a reply: another directory lies at the root's path than the worker is confined to
	flagAttrs               // attrs is set
	flagForeign             // of an error: it is backing.ErrForeign
	flagTimed               // attrs.MTime is set
	flagError               // of a reply: it failed
)

// noSlot says that no slot goes with a message.
const noSlot = -1

// message is a request or its reply. All fields cross in this order; most are zero, which takes
// a byte each.
type message struct {
	call   uint64
	op     op
	flags  uint64
	store  uint64
	handle uint64
	off, n int64
	slot   int64
	name   string
	text   string // a new name, an entity tag, options: see op
	attrs  backing.Attrs
	err    remoteError
	data   []byte
	items  []item
	names  []string
}

// item is a line of a listing.
type item struct {
	name, etag string
	size       int64
	mtime      time.Time
	mode       fs.FileMode
	flags      uint64
}

const (
	itemHasMode = 1 << iota
	itemBare
)

// remoteError is an error as it crosses: what an *bb.Error says, and its number of the kernel.
type remoteError struct {
	kind                     uint64
	op, path, reason, remedy string
	errno                    uint64
}

// maxMessage is the size of the largest message in bytes. A packet of a socket is never split.
const maxMessage = 96 << 10

// maxPage is the size of a listing's page from which it is sent.
const maxPage = 32 << 10

// maxInline bounds the bytes that a message carries itself.
const maxInline = 32 << 10

func (m *message) has(flag uint64) bool { return m.flags&flag != 0 }

// append appends the encoded message.
func (m *message) append(b []byte) []byte {
	b = binary.AppendUvarint(b, m.call)
	b = append(b, byte(m.op))
	for _, v := range []uint64{m.flags, m.store, m.handle} {
		b = binary.AppendUvarint(b, v)
	}
	for _, v := range []int64{m.off, m.n, m.slot} {
		b = binary.AppendVarint(b, v)
	}
	b = appendString(appendString(b, m.name), m.text)
	if m.has(flagAttrs) {
		b = binary.AppendUvarint(b, uint64(m.attrs.Mode))
		b = binary.AppendUvarint(b, uint64(m.attrs.UID))
		b = binary.AppendUvarint(b, uint64(m.attrs.GID))
		b = appendTime(b, m.attrs.MTime)
	}
	if m.has(flagError) {
		b = binary.AppendUvarint(b, m.err.kind)
		b = binary.AppendUvarint(b, m.err.errno)
		for _, s := range []string{m.err.op, m.err.path, m.err.reason, m.err.remedy} {
			b = appendString(b, s)
		}
	}
	b = appendString(b, string(m.data))
	b = binary.AppendUvarint(b, uint64(len(m.items)))
	for i := range m.items {
		b = m.items[i].append(b)
	}
	b = binary.AppendUvarint(b, uint64(len(m.names)))
	for _, s := range m.names {
		b = appendString(b, s)
	}
	return b
}

func (i *item) append(b []byte) []byte {
	b = appendString(appendString(b, i.name), i.etag)
	b = binary.AppendVarint(b, i.size)
	b = appendTime(b, i.mtime)
	b = binary.AppendUvarint(b, uint64(i.mode))
	return binary.AppendUvarint(b, i.flags)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendTime encodes a time as seconds and nanoseconds; one nanosecond too many is the zero time.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return binary.AppendUvarint(binary.AppendVarint(b, 0), uint64(time.Second))
	}
	return binary.AppendUvarint(binary.AppendVarint(b, t.Unix()), uint64(t.Nanosecond()))
}

var errMalformed = errors.New("malformed message")

// decode decodes a message. It keeps nothing of b.
func (m *message) decode(b []byte) error {
	d := decoder{b: b}
	*m = message{call: d.uint(), op: op(d.byte()), flags: d.uint(), store: d.uint(), handle: d.uint()}
	m.off, m.n, m.slot = d.int(), d.int(), d.int()
	m.name, m.text = d.string(), d.string()
	if m.has(flagAttrs) {
		m.attrs.Mode = fs.FileMode(d.uint32())
		m.attrs.UID, m.attrs.GID = d.uint32(), d.uint32()
		m.attrs.MTime = d.time()
	}
	if m.has(flagError) {
		m.err = remoteError{kind: d.uint(), errno: d.uint()}
		m.err.op, m.err.path, m.err.reason, m.err.remedy = d.string(), d.string(), d.string(), d.string()
	}
	m.data = []byte(d.string())
	for n := d.count(); n > 0 && d.err == nil; n-- {
		m.items = append(m.items, item{
			name: d.string(), etag: d.string(), size: d.int(), mtime: d.time(), mode: fs.FileMode(d.uint32()), flags: d.uint(),
		})
	}
	for n := d.count(); n > 0 && d.err == nil; n-- {
		m.names = append(m.names, d.string())
	}
	if d.err == nil && len(d.b) > 0 {
		d.err = errMalformed
	}
	return d.err
}

type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail() { d.b, d.err = nil, errMalformed }

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

// setError puts an error into a reply.
func (m *message) setError(err error) {
	m.flags |= flagError
	m.err = remoteError{kind: uint64(bb.KindOf(err)), reason: err.Error()}
	if e := (*bb.Error)(nil); errors.As(err, &e) {
		m.err.op, m.err.path = e.Op, e.Path
		m.err.reason, m.err.remedy = e.Why()
	}
	if errors.Is(err, backing.ErrForeign) {
		m.flags |= flagForeign
	}
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		m.err.errno = uint64(errno)
	}
	m.err.path, m.err.reason = shortened(m.err.path), shortened(m.err.reason)
}

// shortened bounds what an error quotes.
func shortened(s string) string {
	const most = 8 << 10
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// failure returns the error that a reply stands for; nil if it is none.
func (m *message) failure() error {
	if !m.has(flagError) {
		return nil
	}
	kind := bb.Kind(m.err.kind)
	if m.err.kind == 0 || m.err.kind > uint64(bb.Cancelled) {
		kind = bb.Internal
	}
	var reason error = &crossed{m.err.reason, syscall.Errno(m.err.errno)}
	switch {
	case m.has(flagForeign):
		reason = backing.ErrForeign
	case m.err.reason == "":
		reason = nil
	case m.err.reason == io.ErrUnexpectedEOF.Error():
		reason = io.ErrUnexpectedEOF
	}
	return &bb.Error{Kind: kind, Op: m.err.op, Path: m.err.path, Err: reason, Remedy: m.err.remedy}
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

func itemOf(o *backing.Object) item {
	i := item{name: o.Name, etag: o.ETag, size: o.Size, mtime: o.MTime, mode: o.Mode}
	if o.HasMode {
		i.flags = itemHasMode
	}
	return i
}

func (i *item) object() backing.Object {
	return backing.Object{Name: i.name, ETag: i.etag, Size: i.size, MTime: i.mtime, Mode: i.mode, HasMode: i.flags&itemHasMode != 0}
}

func itemOfVersion(v backing.Version) item { return item{etag: v.ETag, size: v.Size} }

func (i *item) version() backing.Version { return backing.Version{ETag: i.etag, Size: i.size} }

func itemOfOther(o *backing.Other) item {
	i := item{name: o.Name, mtime: o.MTime, mode: o.Mode}
	if o.Bare {
		i.flags = itemBare
	}
	return i
}

func (i *item) other() backing.Other {
	return backing.Other{Name: i.name, Mode: i.mode, MTime: i.mtime, Bare: i.flags&itemBare != 0}
}

// one returns the only item of a reply.
func (m *message) one() (*item, error) {
	if len(m.items) != 1 {
		return nil, fmt.Errorf("%w: %d items instead of one", errMalformed, len(m.items))
	}
	return &m.items[0], nil
}
