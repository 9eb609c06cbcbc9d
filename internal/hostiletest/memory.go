package hostiletest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/checksum"
	"forebay/internal/mapped"
	"forebay/internal/wire"
)

// Attacks with memory that the attacker can write, its own regions.

// mapping is a region that the attacker has mapped.
type mapping struct {
	path string
	mem  []byte
}

func mapRegion(path string) (m mapping, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return m, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return m, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return mapping{path, mem}, err
}

// id is the region's, from its name.
func (m mapping) id() (id uint64) {
	_, _ = fmt.Sscanf(filepath.Base(m.path), "region-%x", &id)
	return id
}

// unmapAll unmaps all regions that the attacker has kept.
func (a *attacker) unmapAll() {
	for _, m := range a.held {
		unix.Munmap(m.mem)
	}
	a.held = nil
}

// searchHeld looks for the victim's bytes in regions that the attacker has kept, and writes over them.
func (a *attacker) searchHeld() error {
	for _, m := range a.held {
		at := -1
		_ = mapped.Guard("search", m.path, func() error {
			if at = bytes.Index(m.mem, []byte(victimsWords)); at >= 0 {
				copy(m.mem[at:], "the attacker was here")
			}
			return nil
		})
		if at >= 0 {
			return fmt.Errorf("the victim's bytes are at %d of %s, which the attacker has mapped", at, m.path)
		}
	}
	return nil
}

// leased takes leases until it has memory in so many regions, or the daemon refuses. It then gives
// them back, and returns the regions. It waits for the first one.
func (a *attacker) leased(most int) (paths []string, err error) {
	if err := a.populated(); err != nil {
		return nil, err
	}
	r, err := a.session()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	seen := map[string]bool{}
	for buffer := patientBuffer; len(seen) < most; buffer = scratchBuffer {
		var l wire.Lease
		if err = r.call(wire.Type_TYPE_LEASE, &wire.LeaseRequest{Buffer: buffer, Bytes: 32 << 20}, &l, nil); err != nil {
			break
		}
		if path := l.Region.GetPath(); path != "" && !seen[path] {
			seen[path] = true
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%w: %w", errVoid, err)
	}
	return paths, nil
}

// populated waits until the daemon has populated its memory. Until then it refuses leases that do not
// wait, for any share of a user.
func (a *attacker) populated() error {
	ctx, cancel := a.within()
	defer cancel()
	for {
		text, err := admin.Status(ctx, a.c, "")
		if err != nil {
			return err
		}
		var status struct{ Memory struct{ Populating bool } }
		if err := json.Unmarshal(text, &status); err != nil || !status.Memory.Populating {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// onRegion does something to a region and then has the daemon copy into it, and stage, flush and
// read from it.
func (a *attacker) onRegion(do func(path string) error) error {
	paths, err := a.leased(1)
	if err != nil {
		return err
	}
	r, err := a.session()
	if err != nil {
		return err
	}
	defer r.Close()
	dir := a.name("dir")
	ctx, cancel := a.within()
	defer cancel()
	m := &wire.Open{Handle: 1, Buffer: scratchBuffer, Path: dir + "/in", Write: true, Create: true, Mode: 0o644}
	if err := a.scratch().MkdirAll(ctx, dir, 0o755); err != nil {
		return err
	}
	if r.call(wire.Type_TYPE_OPEN, m, &wire.Opened{}, nil) != nil {
		return errVoid
	}
	data := a.bytes(16 << 10)
	var want []byte // bytes that the daemon has acknowledged
	for i := range 40 {
		if i == 20 {
			if err := do(paths[0]); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
		e := []*wire.NewExtent{{FileOffset: int64(i) << 14, Length: 16 << 10, Checksum: checksum.Sum(data)}}
		if r.call(wire.Type_TYPE_COMMIT, &wire.Commit{Handle: 1, Extents: e}, &wire.Committed{}, data) == nil {
			want = append(append(want, make([]byte, i<<14-len(want))...), data...)
		}
	}
	_ = r.call(wire.Type_TYPE_COMMIT, &wire.Commit{Handle: 1, Close: true}, &wire.Committed{}, nil)
	b, out := a.scratch(), filepath.Join(a.Dir, dir)
	if err := os.Mkdir(out, 0o700); err != nil {
		return err
	}
	_, _ = admin.StageOut(ctx, a.c, admin.StageRequest{Buffer: scratchBuffer, Path: dir, URL: fileURL(out)}, nil)
	for what, read := range map[string]func() ([]byte, error){
		"a read":      func() ([]byte, error) { return b.ReadFile(ctx, dir+"/in") },
		"a stage-out": func() ([]byte, error) { return os.ReadFile(filepath.Join(out, "in")) },
	} {
		if got, err := read(); err == nil && !bytes.Equal(got, want) {
			return fmt.Errorf("%s gave %d bytes that are not the %d of the file, and no error", what, len(got), len(want))
		}
	}
	if err := b.RemoveAll(ctx, dir); err != nil {
		return err
	}
	return nil
}

// scribble writes over where headers, tables and records are or once were, and over data of each unit.
func (a *attacker) scribble() error {
	return a.onRegion(func(path string) error {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		at := []int64{0, headerCopy, slotTable}
		for end := int64(unit); end < info.Size(); end += unit {
			at = append(at, end, end+dataStart, end+64<<10, end+unit-4096)
		}
		for _, at := range at {
			if _, err := f.WriteAt(a.bytes(4096), at); err != nil {
				return err
			}
		}
		return nil
	})
}

// cut makes a region shorter than the content of its first unit of data.
func (a *attacker) cut() error {
	return a.onRegion(func(path string) error { return os.Truncate(path, pick[int64](a, 0, unit, unit+64<<10)) })
}

// journal opens the journal of a region, on which a restart relies. If that succeeds, the test
// fails.
func (a *attacker) journal() error {
	paths, err := a.leased(1)
	if err != nil {
		return err
	}
	for _, path := range paths {
		for _, how := range []int{os.O_RDONLY, os.O_RDWR} {
			f, err := os.OpenFile(path+".journal", how, 0)
			if err == nil {
				f.Close()
				return fmt.Errorf("a user can open %s", f.Name())
			}
		}
		if err := os.Rename(path, path+".journal"); err == nil {
			return fmt.Errorf("a user can replace the journal of %s", path)
		}
	}
	return nil
}

// ownRegions writes a file, so that a restart has something to find, and maps the regions that the
// attacker then has.
func (a *attacker) ownRegions() (all []mapping, err error) {
	ctx, cancel := a.within()
	defer cancel()
	err = a.scratch().WriteFile(ctx, "mine", a.bytes(unit/2), 0o600)
	if errors.Is(err, client.ErrNoSpace) {
		return nil, errVoid
	}
	if err != nil {
		return nil, err
	}
	paths, err := a.leased(2)
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		m, err := mapRegion(path)
		if err != nil {
			continue // it was deleted meanwhile, or an attack has cut it
		}
		if len(m.mem) < 4*unit {
			unix.Munmap(m.mem)
			continue
		}
		all = append(all, m)
	}
	if len(all) == 0 {
		return nil, errVoid
	}
	return all, nil
}

// afterRestart restarts the daemon with the forgery, and waits until the victim has worked. Root
// needs memory then that no user had mapped.
func (a *attacker) afterRestart() error {
	return errors.Join(a.restart(), a.probe(), a.awaitVictim())
}

// pick returns one of the values.
func pick[T any](a *attacker, values ...T) T { return values[a.rnd.IntN(len(values))] }

// forgedHeaders writes headers, slots and records whose checksums are right and whose content is
// nonsense.
func (a *attacker) forgedHeaders() error {
	all, err := a.ownRegions()
	if err != nil {
		return err
	}
	for _, m := range all {
		size := uint64(len(m.mem))
		forgedHeader{
			version: pick[uint32](a, 1, 2, 3, 99), flags: pick[uint32](a, 0, 1, 2, 3, 1<<9), uid: pick[uint32](a, 0, attackerUID, victimUID),
			tier: pick[uint32](a, 0, 0, 1), id: pick(a, m.id(), 1, 0, a.rnd.Uint64()), size: pick(a, size, size, 2*unit),
			instance: pick(a, 0, 1, a.rnd.Uint64()),
		}.write(m.mem)
		for at := 1; at < len(m.mem)/unit; at++ {
			if a.rnd.IntN(2) == 0 {
				a.nonsense(m.mem, at)
			}
		}
		unix.Munmap(m.mem)
	}
	return a.afterRestart()
}

// nonsense writes a segment with records.
func (a *attacker) nonsense(mem []byte, at int) {
	s := forgedSlot{
		units: pick[uint32](a, 1, 1, 2, 8, 64, 65, 0), uid: attackerUID, nonce: pick(a, 0, 1, a.rnd.Uint64()),
		sequence: pick[uint64](a, 0, 1, 1<<64-1), buffer: pick(a, scratchBuffer, victimsBuffer, "", "../x\n\n"), tier: pick[byte](a, 0, 1, 9),
	}
	s.write(mem, at)
	end := (at + int(s.units)) * unit
	if s.units == 0 || end > len(mem) {
		end = (at + 1) * unit
	}
	segment := mem[at*unit : end]
	for top, n := len(segment), a.rnd.IntN(20); n > 0 && top > dataStart+1000; n-- {
		r := forgedRecord{
			file: pick[uint64](a, 0, 1, 2, 0x800000002), generation: pick[uint64](a, 0, 1, 2, 1<<64-1), base: pick[uint64](a, 0, 1, 5),
			origin: pick[uint64](a, 0, 1, 2), sequence: pick[uint64](a, 0, 1, 1<<64-1), part: pick[uint16](a, 0, 1),
			parts: pick[uint16](a, 0, 1, 2, 65535), flags: pick[uint16](a, 0, 1, 2, 3, 255), state: pick[uint32](a, recordComplete, 0x50424652, 0x56424652, 7),
		}
		for range a.rnd.IntN(4) {
			r.items = append(r.items, forgedExtent{
				pick[uint64](a, 0, 1<<62, 1<<64-1, 4096), pick[uint32](a, 0, 4096, 8192, 1<<32-1), pick[uint32](a, 0, 1, 4096, unit, 1<<32-1), a.rnd.Uint64(),
			})
		}
		top = r.write(segment, top, s.nonce)
	}
}

// forgedRecords writes commit records of the victim's files, with other bytes, in place of the
// victim's, with the checksum of these, and as newer ones.
func (a *attacker) forgedRecords() error {
	files, err := a.openFilesOfVictim()
	if err != nil {
		return err
	}
	all, err := a.ownRegions()
	if err != nil {
		return err
	}
	r, err := a.session()
	if err != nil {
		return err
	}
	r.Close()
	for _, m := range all {
		header := forgedHeader{version: pick[uint32](a, 1, 2), flags: 1, uid: attackerUID, id: m.id(), size: uint64(len(m.mem)), instance: r.instance}
		header.write(m.mem)
		for i, e := range files {
			if at := len(m.mem)/unit - 1 - i; at > 1 {
				a.forgeRecord(m.mem, at, &e)
			}
		}
		unix.Munmap(m.mem)
	}
	return a.afterRestart()
}

// openFilesOfVictim are the files that the attacker may read.
func (a *attacker) openFilesOfVictim() (files []client.Entry, err error) {
	ctx, cancel := a.within()
	defer cancel()
	for e, err := range a.c.Buffer(openBuffer).ReadDir(ctx, "") {
		if errors.Is(err, client.ErrNotFound) {
			return nil, errVoid // the victim has yet to make it
		}
		if err != nil {
			return nil, err
		}
		files = append(files, e)
	}
	if len(files) == 0 {
		return nil, errVoid
	}
	return files, nil
}

// forgeRecord writes a segment with one record of a file of the victim's.
func (a *attacker) forgeRecord(mem []byte, at int, e *client.Entry) {
	s := forgedSlot{units: 1, uid: attackerUID, nonce: a.rnd.Uint64(), sequence: 1 << 40, buffer: pick(a, openBuffer, scratchBuffer)}
	s.write(mem, at)
	segment := mem[at*unit : (at+1)*unit]
	body := segment[dataStart:][:min(max(int(e.Size), 16), unit/2)]
	copy(body, bytes.Repeat([]byte("FORGED BY THE ATTACKER "), len(body)/23+1))
	generation := uint64(e.Generation)
	if a.rnd.IntN(2) == 0 {
		collide(body, e.Checksum)
	} else {
		generation++
	}
	forgedRecord{
		file: uint64(e.File), generation: generation, origin: generation, sequence: 1 << 62, parts: 1, state: recordComplete,
		items: []forgedExtent{{0, dataStart, uint32(len(body)), checksum.Sum(body)}},
	}.write(segment, unit, s.nonce)
}

// nobodysRegions marks the attacker's regions as without an owner, and keeps them mapped while they
// go to their next users.
func (a *attacker) nobodysRegions() error {
	all, err := a.ownRegions()
	if err != nil {
		return err
	}
	a.unmapAll()
	defer a.unmapAll()
	for _, m := range all {
		a.held = append(a.held, m)
		forgedHeader{version: pick[uint32](a, 1, 2), id: m.id(), size: uint64(len(m.mem)), uid: attackerUID}.write(m.mem)
		clear(m.mem[slotTable:][:len(m.mem)/unit*slotSize])
	}
	if err := a.afterRestart(); err != nil {
		return err
	}
	return a.searchHeld()
}

// heldRegions keeps regions mapped that were given back, so that their memory does not come back
// to the file system, over a restart.
func (a *attacker) heldRegions() error {
	paths, err := a.leased(1000)
	if err != nil {
		return err
	}
	a.unmapAll()
	defer a.unmapAll()
	for _, path := range paths {
		if m, err := mapRegion(path); err == nil {
			a.held = append(a.held, m)
		}
	}
	if err := a.afterRestart(); err != nil {
		return err
	}
	if err := a.searchHeld(); err != nil {
		return err
	}
	a.unmapAll()
	return a.awaitVictim()
}
