package store

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"forebay/bbd/store/format"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

var modelSeed = flag.Uint64("model.seed", 0, "seed of the model test; 0: several fixed ones")

// modelFile is the expected content of a file: plain bytes.
type modelFile struct {
	gen     bb.Generation
	last    bb.Generation // largest number used, abandoned ones included
	content []byte
	object  []byte // the backing store's content
	clean   bool
	sealed  bool
	older   map[bb.Generation][]byte
}

type modelView struct {
	v    *Snapshot
	want []byte
	// object is the backing store's content when the view was opened
	object []byte
}

// model drives a store with random operations and has its expected content.
type model struct {
	t     *testing.T
	r     *rand.Rand
	o     Options
	s     *Store
	files map[bb.FileID]*modelFile
	next  bb.FileID
	views []modelView
	count map[string]int
}

// some number of random bytes, mostly small, sometimes large.
func (m *model) bytes() []byte {
	n := 1 + m.r.IntN(3000)
	if m.r.IntN(10) == 0 {
		n = 1 + m.r.IntN(300_000)
	}
	return content(m.r.Uint64(), n)
}

func (m *model) pick() (bb.FileID, *modelFile) {
	n := m.r.IntN(len(m.files) + 1)
	for f := bb.FileID(1); f <= m.next; f++ {
		if file := m.files[f]; file != nil {
			if n == 0 {
				return f, file
			}
			n--
		}
	}
	m.next++
	file := &modelFile{older: map[bb.Generation][]byte{}}
	m.files[m.next] = file
	return m.next, file
}

// lease makes room when there is none.
func (m *model) lease(n int64) Lease {
	for try := 0; ; try++ {
		l, err := m.s.Lease(LeaseRequest{Buffer: "b", UID: ownUID(), Bytes: n, Min: int64(m.r.IntN(2)) * (n - 2*format.DataStart)})
		if err == nil {
			return l
		}
		if !errors.Is(err, ErrNoRoom) || try > 60 {
			m.t.Fatalf("lease: %v, %+v", err, m.s.Stats().Memory)
		}
		m.makeRoom(try)
	}
}

func (m *model) makeRoom(try int) {
	if m.s.Evict(bb.TierMemory, 4<<20) > 0 {
		m.count["evicted for room"]++
		return
	}
	if try > 2 {
		m.s.Evict(bb.TierDisk, 8<<20)
	}
	if n, err := m.s.Spill(context.Background(), 4<<20); n > 0 || err != nil && !errors.Is(err, bb.NoSpace) {
		m.count["spilled for room"]++
		return
	}
	// All is dirty, or held by views.
	m.closeView()
	if try > 5 {
		m.drop()
	}
	m.flush()
}

type stretch struct {
	off int64
	p   []byte
}

// write commits a few extents through one or more leases.
func (m *model) write() {
	f, file := m.pick()
	base, fresh := bb.Generation(0), false
	if file.gen == 0 || file.sealed && m.r.IntN(8) == 0 {
		fresh = file.gen != 0
	}
	if file.gen == 0 || file.sealed {
		base = file.gen
		if file.gen != 0 {
			file.older[file.gen] = file.content
		}
		file.last++
		file.gen, file.sealed = file.last, false
		if fresh {
			file.content = nil
		}
		file.content = bytes.Clone(file.content)
		m.commit(f, file, base, fresh)
		return
	}
	m.commit(f, file, m.baseOf(f, file), false)
}

func (m *model) baseOf(f bb.FileID, file *modelFile) bb.Generation {
	h := m.s.shard(f)
	h.Lock()
	defer h.Unlock()
	return h.find(f, file.gen).base
}

func (m *model) commit(f bb.FileID, file *modelFile, base bb.Generation, fresh bool) {
	c := Commit{File: f, Generation: file.gen, Base: base, Fresh: fresh, Buffer: "b"}
	var leases []Lease
	var stretches []stretch
	for range m.r.IntN(6) {
		p := m.bytes()
		off := m.r.Int64N(int64(len(file.content)) + 2000)
		// One of the leases of this commit again, or another one. Later extents win at any places.
		i := m.r.IntN(len(leases) + 1)
		for ; i == len(leases) || align(leases[i].DataStart)+int64(len(p))+format.RecordCost(1) > leases[i].RecordFloor; i = len(leases) - 1 {
			leases = append(leases, m.lease(int64(len(p))+3*format.DataStart))
		}
		l := &leases[i]
		at := align(l.DataStart)
		c.Extents = append(c.Extents, NewExtent{l.ID, at, off, int64(len(p)), checksum.Copy(l.Mem[at:], p, 0)})
		l.DataStart, l.RecordFloor = at+int64(len(p)), l.RecordFloor-format.RecordCost(1)
		stretches = append(stretches, stretch{off, p})
	}
	if m.files[f] != file { // dropped to make room
		m.release(leases)
		return
	}
	if err := m.s.Commit(c); err != nil {
		m.t.Fatal(err)
	}
	m.release(leases)
	for _, st := range stretches {
		file.content = overlay(file.content, st.off, st.p)
	}
	file.clean = false
	m.count[fmt.Sprintf("commit of %d extents", len(stretches))]++
}

func overlay(content []byte, off int64, p []byte) []byte {
	if need := off + int64(len(p)); need > int64(len(content)) {
		content = append(content, make([]byte, need-int64(len(content)))...)
	}
	copy(content[off:], p)
	return content
}

func (m *model) release(leases []Lease) {
	for _, l := range leases {
		end := m.s.Release
		if m.r.IntN(4) == 0 {
			end = m.s.Abandon
		}
		if err := end(l.ID); err != nil {
			m.t.Fatal(err)
		}
	}
}

// abandon writes a generation that never becomes the file's content.
func (m *model) abandon() {
	f, file := m.pick()
	if file.gen == 0 || !file.sealed {
		return
	}
	file.last++
	ghost := &modelFile{gen: file.last, content: bytes.Clone(file.content)}
	m.commitGhost(f, ghost, file)
	if m.r.IntN(2) == 0 {
		if err := m.s.Void(f, ghost.gen); err != nil {
			m.t.Fatal(err)
		}
		m.count["void"]++
		return
	}
	m.count["abandoned"]++
	m.restart() // adopting voids it
}

func (m *model) commitGhost(f bb.FileID, ghost, file *modelFile) {
	l := m.lease(1 << 20)
	defer m.release([]Lease{l})
	if m.files[f] != file {
		return
	}
	p := content(m.r.Uint64(), 1000)
	off := m.r.Int64N(int64(len(file.content)) + 1)
	err := m.s.Commit(Commit{File: f, Generation: ghost.gen, Base: file.gen, Buffer: "b", Extents: []NewExtent{
		{l.ID, l.DataStart, off, 1000, checksum.Copy(l.Mem[l.DataStart:], p, 0)},
	}})
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) seal() {
	f, file := m.pick()
	if file.gen == 0 {
		return
	}
	if err := m.s.Seal(f, file.gen); err != nil {
		m.t.Fatal(err)
	}
	file.sealed = true
	for g := range file.older {
		if m.r.IntN(4) > 0 {
			m.s.DropGeneration(f, g)
			delete(file.older, g)
		}
	}
}

// flush fills evicted ranges, and makes a file clean.
func (m *model) flush() {
	f, file := m.pick()
	if file.gen == 0 || !file.sealed {
		return
	}
	if !m.fill(f, file) || m.files[f] != file {
		return
	}
	m.replaceObject(f, file.content)
	for g := range file.older { // likewise
		m.s.DropGeneration(f, g)
		delete(file.older, g)
	}
	err := m.s.MarkClean(f, file.gen)
	if err != nil {
		m.t.Fatal(err)
	}
	file.object, file.clean = bytes.Clone(file.content), true
	m.count["flush"]++
}

// replaceObject closes the views that show evicted bytes of the object that a flush is going to
// replace. No store can keep those.
func (m *model) replaceObject(f bb.FileID, object []byte) {
	for i := range m.views {
		v := &m.views[i]
		if v.v == nil || v.v.g.file != f {
			continue
		}
		for _, e := range v.v.Extents(0, v.v.Size(), 0) {
			if e.State == Evicted {
				v.v.Close()
				v.v = nil
				break
			}
		}
		v.object = bytes.Clone(object)
	}
}

// fill puts all evicted bytes of a file back and reports whether that succeeded.
func (m *model) fill(f bb.FileID, file *modelFile) bool {
	v, err := m.s.Snapshot(f, file.gen)
	if err != nil {
		m.t.Fatal(err)
	}
	defer v.Close()
	for _, e := range v.Extents(0, v.Size(), 0) {
		if e.State != Evicted {
			continue
		}
		from := e.FileOffset - e.Cut
		l := m.lease(e.WholeLength + 3*format.DataStart)
		if m.files[f] != file || l.DataStart+e.WholeLength+format.RecordCost(1) > l.RecordFloor {
			m.release([]Lease{l})
			return false
		}
		copy(l.Mem[l.DataStart:], file.object[from:from+e.WholeLength])
		err := m.s.Fill(f, file.gen, FillExtent{l.ID, l.DataStart, from, e.WholeLength})
		m.release([]Lease{l})
		if err != nil && !errors.Is(err, bb.Invalid) { // one extent may have filled several pieces
			m.t.Fatal(err)
		}
		m.count["fill"]++
	}
	v2, err := m.s.Snapshot(f, file.gen)
	if err != nil {
		m.t.Fatal(err)
	}
	defer v2.Close()
	for _, e := range v2.Extents(0, v2.Size(), 0) {
		if e.State == Evicted { // evicted again to make room
			return false
		}
	}
	return true
}

func (m *model) drop() {
	f, file := m.pick()
	if file.gen != 0 {
		m.s.Drop(f)
	}
	delete(m.files, f)
	m.count["drop"]++
}

func (m *model) openView() {
	f, file := m.pick()
	if file.gen == 0 || len(m.views) > 20 {
		return
	}
	g, want := file.gen, file.content
	for old, p := range file.older {
		if m.r.IntN(3) == 0 {
			g, want = old, p
			break
		}
	}
	v, err := m.s.Snapshot(f, g)
	if err != nil {
		m.t.Fatal(err)
	}
	m.views = append(m.views, modelView{v, bytes.Clone(want), file.object})
}

func (m *model) closeView() {
	if len(m.views) > 0 {
		i := m.r.IntN(len(m.views))
		if m.views[i].v != nil {
			m.verify(m.views[i])
			m.views[i].v.Close()
		}
		m.views = append(m.views[:i], m.views[i+1:]...)
	}
}

// verify compares a view with the model, byte for byte or by checksum.
func (m *model) verify(w modelView) {
	m.t.Helper()
	v := w.v
	f, g := v.File()
	if v.Size() != int64(len(w.want)) {
		m.t.Fatalf("file %s generation %d has %d bytes, want %d", f, g, v.Size(), len(w.want))
	}
	pin, err := v.Pin(0, v.Size())
	if err != nil {
		m.t.Fatal(err)
	}
	defer pin.Release()
	if err := v.Verify(context.Background(), 0, v.Size()); err != nil {
		m.t.Fatal(err)
	}
	at := int64(0)
	for _, e := range v.Extents(0, v.Size(), 0) {
		if e.FileOffset != at {
			m.t.Fatalf("file %s: extent at %d, want %d", f, e.FileOffset, at)
		}
		at += e.Length
		want := w.want[e.FileOffset:at]
		if e.State == Evicted {
			from := e.FileOffset - e.Cut
			object := w.object[from : from+e.WholeLength]
			if e.Checksum != checksum.Sum(object) || !bytes.Equal(object[e.Cut:e.Cut+e.Length], want) {
				m.t.Fatalf("file %s generation %d: evicted range %d+%d is not what the store has", f, g, e.FileOffset, e.Length)
			}
			m.count["evicted extent"]++
			continue
		}
		parts, err := v.Slices(e.FileOffset, e.Length, nil)
		if err != nil {
			m.t.Fatal(err)
		}
		if !bytes.Equal(bytes.Join(parts, nil), want) {
			m.t.Fatalf("file %s generation %d: range %d+%d (%s) differs", f, g, e.FileOffset, e.Length, e.State)
		}
	}
	if at != v.Size() {
		m.t.Fatalf("file %s: extents end at %d of %d", f, at, v.Size())
	}
}

func (m *model) verifyFile(f bb.FileID, file *modelFile) {
	if file.gen == 0 {
		return
	}
	v, err := m.s.Snapshot(f, file.gen)
	if err != nil {
		m.t.Fatal(err)
	}
	defer v.Close()
	m.verify(modelView{v, file.content, file.object})
}

func (m *model) restart() {
	for len(m.views) > 0 {
		m.closeView()
	}
	if err := m.s.Close(); err != nil {
		m.t.Fatal(err)
	}
	m.s = open(m.t, m.o)
	if d := m.s.Damage(); len(d) > 0 {
		m.t.Fatalf("damage: %+v", d)
	}
	for info := range m.s.Files() {
		file := m.files[info.File]
		if file == nil || file.gen == 0 {
			m.s.Drop(info.File)
			continue
		}
		sealed := file.sealed
		adopt := m.s.Adopt
		if file.clean {
			adopt = m.s.AdoptClean
		}
		if err := adopt(info.File, file.gen); err != nil {
			m.t.Fatal(err)
		}
		if err := m.s.Seal(info.File, file.gen); err != nil {
			m.t.Fatal(err)
		}
		if !sealed { // the daemon closes files that its writers left open
			file.sealed = true
		}
		clear(file.older)
	}
	for f, file := range m.files {
		m.verifyFile(f, file)
	}
	m.count["restart"]++
}

func (m *model) step() {
	switch n := m.r.IntN(100); {
	case n < 40:
		m.write()
	case n < 55:
		m.seal()
	case n < 65:
		m.flush()
	case n < 72:
		m.s.Evict(bb.TierMemory, 1<<20)
	case n < 75:
		if _, err := m.s.Spill(context.Background(), 2<<20); err != nil && !errors.Is(err, bb.NoSpace) {
			m.t.Fatal(err)
		}
	case n < 85:
		m.openView()
	case n < 92:
		m.closeView()
	case n < 94:
		m.drop()
	case n < 96:
		m.abandon()
	case n < 99:
		f, file := m.pick()
		m.verifyFile(f, file)
	default:
		if m.r.IntN(4) == 0 {
			m.restart()
		}
	}
}

func TestModel(t *testing.T) {
	seeds := []uint64{1, 2, 3}
	if *modelSeed != 0 {
		seeds = []uint64{*modelSeed}
	}
	total := map[string]int{}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			for what, n := range runModel(t, seed) {
				total[what] += n
			}
		})
	}
	for _, must := range []string{"flush", "fill", "drop", "restart", "void", "abandoned", "evicted extent", "commit of 3 extents"} {
		if total[must] == 0 && *modelSeed == 0 {
			t.Errorf("the model never came to %q: %v", must, total)
		}
	}
}

func runModel(t *testing.T, seed uint64) map[string]int {
	o := folders(t)
	m := &model{t: t, r: rand.New(rand.NewPCG(seed, 7)), o: o, s: open(t, o), files: map[bb.FileID]*modelFile{}, count: map[string]int{}}
	for range 1500 {
		m.step()
	}
	m.restart()
	for f := range m.files {
		m.s.Drop(f)
	}
	st := m.s.Stats()
	if st.Memory.Used != 0 || st.Disk.Used != 0 || st.Memory.Live != 0 || st.Files != 0 {
		t.Errorf("after dropping everything: %+v", st)
	}
	return m.count
}
