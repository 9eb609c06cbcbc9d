package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"

	"forebay/internal/bb"
)

// Identity says whose bytes the store holds of a file, in case the namespace does not
// know of them any more: where the file lay, what of it was acknowledged, and who wrote it.
type Identity struct {
	File       bb.FileID
	Generation bb.Generation
	Buffer     string
	Made       int64    // when that buffer was made, in nanoseconds since 1970: another one may have its name since
	Dir        bb.DirID // the directory that it lay in, and its name there
	Name       string
	Path       string // in the buffer when the identity was written; a rename of a directory does not change it
	UID, GID   uint32
	Mode       fs.FileMode
	MTime      time.Time
	Writer     string // the client that made the generation; "" where unknown
	Closed     bool   // size and checksum are those of the finished generation
	Size       int64
	Checksum   uint64
	Revision   uint64 // that its entry had, if the namespace tells by it what was removed from what it has lost
}

// The encoding of an identity. It is the payload of a record (format.go), which has its
// own checksum and length; it names neither segment nor region, so that a journal which
// lies elsewhere can hold the same bytes. All numbers are little-endian.
//
//	version 1 │ flags 1 │ 0 2 │ uid 4 │ gid 4 │ mode 4 │ file 8 │ generation 8 │ dir 8 │ size 8 │ checksum 8 │ mtime 8 │ buffer made 8 │
//	lengths of buffer 2, name 2, path 2, writer 2 │ buffer │ name │ path │ writer │ revision 8 │ zeros up to a multiple of 24
//
// The mtime is in nanoseconds since 1970, the least number for none; a flag says if a revision is there.
const (
	identityVersion  = 1
	identityHead     = 80
	identityClosed   = 1 // flags
	identityRevision = 2
	identityText     = 1<<16 - 1 // bytes of each text, at most
)

// AppendIdentity appends an identity's encoding to p. Texts that are too long are cut:
// a path is a hint, and names have a smaller bound of their own.
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
	texts := [...]string{id.Buffer, id.Name, id.Path, id.Writer}
	for i := range texts {
		texts[i] = texts[i][:min(len(texts[i]), identityText)]
		le.PutUint16(h[72+2*i:], uint16(len(texts[i])))
	}
	from := len(p)
	p = append(p, h[:]...)
	for _, t := range texts {
		p = append(p, t...)
	}
	if id.Revision != 0 {
		p[from+1] |= identityRevision
		p = le.AppendUint64(p, id.Revision)
	}
	return append(p, make([]byte, (recordItem-(len(p)-from)%recordItem)%recordItem)...)
}

// DecodeIdentity reads what AppendIdentity wrote. It refuses what cannot be an identity.
func DecodeIdentity(p []byte) (id Identity, err error) {
	le := binary.LittleEndian
	if len(p) < identityHead {
		return id, fmt.Errorf("an identity of %d bytes", len(p))
	}
	if p[0] != identityVersion {
		return id, bb.E(bb.Unsupported, "identity", "", fmt.Sprintf("version %d found, version %d supported", p[0], identityVersion))
	}
	if p[1]&^(identityClosed|identityRevision) != 0 || p[2] != 0 || p[3] != 0 {
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
	if p[1]&identityRevision != 0 {
		if len(rest) < 8 || le.Uint64(rest) == 0 {
			return Identity{}, fmt.Errorf("an identity without its revision")
		}
		id.Revision, rest = le.Uint64(rest), rest[8:]
	}
	return id, id.check(rest)
}

// check refuses an identity whose encoding is right and whose content cannot be. Rest are
// the bytes after its texts.
func (id *Identity) check(rest []byte) error {
	for _, b := range rest {
		if b != 0 || len(rest) >= recordItem {
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

// identityAt is where the identity of a file lies that counts.
type identityAt struct {
	seg        *segment
	top        int64
	bytes      int64 // of its record
	generation bb.Generation
	sequence   uint64
}

// Identify writes the identity of a file, in place of the one that it had. It is memory
// alone, like a commit. It lasts until the file is dropped, or the generation that it
// names. bb.NoSpace where there is no room for more of the store's own records.
func (s *Store) Identify(id *Identity) error {
	s.tidyNotes()
	err := s.identify(id)
	if bb.KindOf(err) == bb.NoSpace && s.growLog() {
		err = s.identify(id)
	}
	return err
}

func (s *Store) identify(id *Identity) error {
	var d dead
	h := s.shard(id.File)
	h.Lock()
	err := s.noteIdentity(h, id.File, id.Generation, AppendIdentity(nil, id), &d)
	h.Unlock()
	s.reap(d)
	return err
}

// noteIdentity writes the record of an identity and then strikes out the one before:
// killed in between, the later one counts. The caller holds the shard.
func (s *Store) noteIdentity(h *shard, f bb.FileID, n bb.Generation, payload []byte, d *dead) error {
	r := record{file: f, generation: n, origin: n, parts: 1, flags: recordIdentity, payload: payload}
	g, err := s.note(&r)
	if err != nil {
		return err
	}
	s.crash("identity written")
	old, had := h.ids[f]
	h.countIdentity(&r, g)
	if had {
		s.strikeIdentity(old, d)
	}
	return nil
}

// countIdentity makes a record the identity of its file. Its segment has a reference for it.
func (h *shard) countIdentity(r *record, g *segment) {
	id := identityAt{seg: g, top: r.top, bytes: RecordCost(r.length()), generation: r.generation, sequence: r.sequence}
	h.ids[r.file] = id
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.identities++
	g.mu.identityBytes += id.bytes
}

// strikeIdentity makes an identity void that does not count any more.
func (s *Store) strikeIdentity(id identityAt, d *dead) {
	g := id.seg
	g.mu.Lock()
	err := guard("void", g.mu.region.path, func() error { voidAt(g.records(), id.top); return nil })
	g.mu.identities--
	g.mu.identityBytes -= id.bytes
	g.mu.Unlock()
	if err != nil {
		s.log.Error("strike out the identity of a file that is gone: it may come back after a restart", "error", err)
	}
	if g.refs.Add(-1) == 0 {
		*d = append(*d, g)
	}
}

// moveIdentity writes the identity of a file again if it lies in a victim. The caller
// holds the shard.
func (s *Store) moveIdentity(h *shard, f bb.FileID, victims map[*segment]bool, d *dead) error {
	id, ok := h.ids[f]
	if !ok || !victims[id.seg] {
		return nil
	}
	payload, err := id.payload()
	if err != nil {
		return err
	}
	return s.noteIdentity(h, f, id.generation, payload, d)
}

// payload reads an identity's encoding.
func (id identityAt) payload() (p []byte, err error) {
	id.seg.mu.Lock()
	defer id.seg.mu.Unlock()
	err = guard("read identity", id.seg.mu.region.path, func() error {
		p = append(p, id.seg.records()[id.top-id.bytes:id.top-recordHead]...)
		return nil
	})
	return p, err
}

// identity returns the identity of a file; nil where it has none that can be read. The
// caller holds the shard.
func (h *shard) identity(f bb.FileID) *Identity {
	at, ok := h.ids[f]
	if !ok {
		return nil
	}
	p, err := at.payload()
	if err != nil {
		return nil
	}
	if id, err := DecodeIdentity(p); err == nil && id.File == f {
		return &id
	}
	return nil
}

// IdentityOf returns the identity of a file, if it has one.
func (s *Store) IdentityOf(f bb.FileID) (Identity, bool) {
	h := s.shard(f)
	h.Lock()
	defer h.Unlock()
	id := h.identity(f)
	if id == nil {
		return Identity{}, false
	}
	return *id, true
}

// logShare is the share of memory that the store's own records may take, beside it.
const logShare = 8

// mostLog bounds the regions of the store's own records.
func (o *Options) mostLog() int64 { return max(o.logBytes(), o.MemoryBytes/logShare) + o.logBytes() }

// growLog makes another region for the store's own records, if they may take more.
func (s *Store) growLog() bool {
	s.mu.Lock()
	total := s.o.logBytes()
	for _, r := range s.mu.regions {
		if r.log {
			total += int64(len(r.mem))
		}
	}
	closed, bytes, most := s.mu.closed, s.o.logBytes(), s.o.MemoryBytes/logShare
	s.mu.Unlock()
	if closed || total > most {
		return false
	}
	r, err := s.newRegion(bb.TierMemory, bytes, true)
	if err != nil {
		s.log.Error("make another region for the store's own records", "error", err)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.regions = append(s.mu.regions, r)
	return true
}

// recoverIdentities takes the identities out of the records that recovery found. Of each
// file the last one counts; the others, and what cannot be read, are struck out.
func (s *Store) recoverIdentities(records []recovered) []recovered {
	rest := records[:0]
	for i := range records {
		r := &records[i]
		if r.flags&recordIdentity == 0 {
			rest = append(rest, *r)
			continue
		}
		r.record.top = r.top
		if id, err := DecodeIdentity(r.payload); err != nil || id.File != r.file {
			s.damaged(Damage{
				Region: r.seg.mu.region.id, Path: r.seg.mu.region.path, Segment: r.seg.mu.offset, From: r.top - RecordCost(r.length()), To: r.top,
				What: "the identity of a file is damaged", File: r.file, Generation: r.generation,
			})
			continue
		}
		h := s.shard(r.file)
		old, had := h.ids[r.file]
		if had && old.sequence > r.sequence {
			if err := guard("void", r.seg.mu.region.path, func() error { voidAt(r.seg.records(), r.top); return nil }); err != nil {
				s.log.Error("strike out an identity that does not count", "error", err)
			}
			continue
		}
		r.seg.addFile(r.file)
		r.seg.refs.Add(1)
		h.countIdentity(&r.record, r.seg)
		if had {
			var d dead // the segments that nothing refers to are found when all is rebuilt
			s.strikeIdentity(old, &d)
		}
	}
	return rest
}

// findOrigins finds out why files have no identity, and drops the identities of files
// that nothing is left of.
func (s *Store) findOrigins() {
	s.found.origins = map[bb.FileID]Origin{}
	hasLog := false
	for _, r := range s.mu.regions {
		hasLog = hasLog || r.log
	}
	for i := range s.shards {
		h := &s.shards[i]
		for f := range h.files {
			if _, ok := h.ids[f]; ok {
				continue
			}
			switch {
			case h.ofOlder(f):
				s.found.origins[f] = OriginOlder
			case !hasLog && !s.wasDropped(f):
				s.found.origins[f] = OriginForgotten
			}
		}
		for f, id := range h.ids {
			if h.files[f] == nil {
				var d dead // found like the others
				delete(h.ids, f)
				s.strikeIdentity(id, &d)
			}
		}
	}
}

// ofOlder reports whether bytes of a file lie where an older release may have put them.
func (h *shard) ofOlder(f bb.FileID) (older bool) {
	h.views(f, func(m *extentMap) {
		m.walk(0, math.MaxInt64, func(e *extent) bool {
			older = older || e.seg != nil && e.seg.mu.region.older
			return !older
		})
	})
	for g := range h.generations(f) {
		older = older || h.anchors[g] != nil && h.anchors[g].mu.region.older
	}
	return older
}
