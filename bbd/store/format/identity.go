package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"time"

	"forebay/internal/bb"
)

// Identity describes the origin of a file's bytes in the store, in case the namespace has
// lost the file: its place, its acknowledged state, and its writer.
type Identity struct {
	File       bb.FileID
	Generation bb.Generation
	Buffer     string
	Made       int64    // when that buffer was made, in nanoseconds since 1970: another one may have its name since
	Dir        bb.DirID // the directory that it lay in, and its name there
	Name       string
	Path       string // in the buffer when the identity was written. A rename of a directory does not change it
	UID, GID   uint32
	Mode       fs.FileMode
	MTime      time.Time
	Writer     string // the client that made the generation; "" where unknown
	Closed     bool   // size and checksum are those of the finished generation
	Size       int64
	Checksum   uint64
	Revision   uint64 // that its entry had, if the namespace distinguishes removed files from lost ones by it
}

// The encoding of an identity. It is the payload of a record (format.go), which has its own
// checksum and length. It names neither segment nor region, so that a journal which lies elsewhere
// can hold the same bytes. All numbers are little-endian.
//
//	version 1 │ flags 1 │ 0 2 │ uid 4 │ gid 4 │ mode 4 │ file 8 │ generation 8 │ dir 8 │ size 8 │ checksum 8 │ mtime 8 │ buffer made 8 │
//	lengths of buffer 2, name 2, path 2, writer 2 │ buffer │ name │ path │ writer │ zeros up to a multiple of 24
//
// The mtime is in nanoseconds since 1970, the least number for none. A revision is the end of the writer, a
// zero and its eight bytes, since releases without revisions refuse other fields, and read that one as a text.
const (
	identityVersion  = 1
	identityHead     = 80
	identityClosed   = 1         // flag
	identityText     = 1<<16 - 1 // bytes of each text, at most
	identityRevision = 1 + 8     // bytes of a revision
)

// AppendIdentity appends an identity's encoding to p. Texts that are too long are cut. A path is a
// hint, and names have a smaller bound of their own.
func AppendIdentity(p []byte, id *Identity) []byte {
	h := [identityHead]byte{identityVersion}
	le := binary.LittleEndian
	if id.Closed {
		h[1] = identityClosed
	}
	le.PutUint32(h[4:], id.UID)
	le.PutUint32(h[8:], id.GID)
	le.PutUint32(h[12:], uint32(id.Mode.Perm()))
	le.PutUint64(h[16:], uint64(id.File))
	le.PutUint64(h[24:], uint64(id.Generation))
	le.PutUint64(h[32:], uint64(id.Dir))
	le.PutUint64(h[40:], uint64(id.Size))
	le.PutUint64(h[48:], id.Checksum)
	mtime := int64(math.MinInt64)
	if !id.MTime.IsZero() {
		mtime = id.MTime.UnixNano()
	}
	le.PutUint64(h[56:], uint64(mtime))
	le.PutUint64(h[64:], uint64(id.Made))
	texts := [...]string{id.Buffer, id.Name, id.Path, writerOf(id)}
	for i := range texts {
		texts[i] = texts[i][:min(len(texts[i]), identityText)]
		le.PutUint16(h[72+2*i:], uint16(len(texts[i])))
	}
	from := len(p)
	p = append(p, h[:]...)
	for _, t := range texts {
		p = append(p, t...)
	}
	return append(p, make([]byte, (RecordItem-(len(p)-from)%RecordItem)%RecordItem)...)
}

// DecodeIdentity reads the encoding of AppendIdentity. It refuses an impossible identity.
func DecodeIdentity(p []byte) (id Identity, err error) {
	le := binary.LittleEndian
	if len(p) < identityHead {
		return id, fmt.Errorf("an identity of %d bytes", len(p))
	}
	if p[0] != identityVersion {
		return id, bb.E(bb.Unsupported, "identity", "", fmt.Sprintf("version %d found, version %d supported", p[0], identityVersion))
	}
	if p[1]&^identityClosed != 0 || p[2] != 0 || p[3] != 0 {
		return id, fmt.Errorf("an identity with flags %#x %#x %#x", p[1], p[2], p[3])
	}
	id = Identity{
		Closed: p[1]&identityClosed != 0, UID: le.Uint32(p[4:]), GID: le.Uint32(p[8:]), Mode: fs.FileMode(le.Uint32(p[12:])).Perm(),
		File: bb.FileID(le.Uint64(p[16:])), Generation: bb.Generation(le.Uint64(p[24:])), Dir: bb.DirID(le.Uint64(p[32:])),
		Size: int64(le.Uint64(p[40:])), Checksum: le.Uint64(p[48:]), Made: int64(le.Uint64(p[64:])),
	}
	if n := int64(le.Uint64(p[56:])); n != math.MinInt64 {
		id.MTime = time.Unix(0, n).UTC()
	}
	rest := p[identityHead:]
	for i, text := range []*string{&id.Buffer, &id.Name, &id.Path, &id.Writer} {
		n := int(le.Uint16(p[72+2*i:]))
		if n > len(rest) {
			return Identity{}, fmt.Errorf("an identity whose texts end after its %d bytes", len(p))
		}
		*text, rest = string(rest[:n]), rest[n:]
	}
	id.Writer, id.Revision = cutRevision(id.Writer)
	return id, id.check(rest)
}

// writerOf is the writer as it is written, with the revision. It has no zeros of its own.
func writerOf(id *Identity) string {
	writer := strings.ReplaceAll(id.Writer, "\x00", "")
	if id.Revision == 0 {
		return writer
	}
	writer = writer[:min(len(writer), identityText-identityRevision)] + "\x00"
	return string(binary.LittleEndian.AppendUint64([]byte(writer), id.Revision))
}

// cutRevision is the reverse of writerOf.
func cutRevision(text string) (writer string, revision uint64) {
	if at := len(text) - identityRevision; at >= 0 && text[at] == 0 {
		text, revision = text[:at], binary.LittleEndian.Uint64([]byte(text[at+1:]))
	}
	return strings.ReplaceAll(text, "\x00", ""), revision
}

// check refuses an identity whose encoding is right and whose content cannot be. Rest are
// the bytes after its texts.
func (id *Identity) check(rest []byte) error {
	for _, b := range rest {
		if b != 0 || len(rest) >= RecordItem {
			return fmt.Errorf("an identity with %d bytes after its texts", len(rest))
		}
	}
	switch {
	case id.File == 0 || id.Generation == 0 || id.Dir == 0:
		return fmt.Errorf("an identity of file %d, generation %d, directory %d", id.File, id.Generation, id.Dir)
	case id.Size < 0 || id.Size > bb.MaxFileSize:
		return fmt.Errorf("an identity of %d bytes", id.Size)
	}
	return errors.Join(bb.CheckBufferName(id.Buffer), bb.CheckName(id.Name))
}
