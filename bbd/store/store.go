package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"golang.org/x/sys/unix"

	"forebay/bbd/store/dropped"
	"forebay/bbd/store/folder"
	"forebay/bbd/store/format"
	"forebay/bbd/store/populate"
	"forebay/bbd/store/regionfile"
	"forebay/internal/bb"
)

const shardCount = 64

// shard holds the index of some of the files.
type shard struct {
	sync.Mutex
	files   map[bb.FileID]*generation // the newest generation, which leads to the others
	anchors map[*generation]*segment  // where the records of generations without extents of their own lie
	ids     map[bb.FileID]identityAt  // where the identities of files lie
}

// Store keeps the bytes of one node. All methods may be called concurrently.
type Store struct {
	o         Options
	log       *slog.Logger
	memDir    string
	mounted   bool
	instance  bb.InstanceID
	wanted    struct{ memory, region int64 } // sizes, before they were made to fit a tmpfs; 0: on no tmpfs
	owner     format.Owner
	ready     chan struct{}
	populator populate.Populator[*region]
	locks     []*os.File

	shards   [shardCount]shard
	sequence atomic.Uint64 // the last commit's
	clock    atomic.Int64  // counts uses of segments
	making   sync.WaitGroup
	spillMu  sync.Mutex // one spill at a time, since a disk writes fastest in one stream

	own struct { // the store's own records, of evictions and of empty commits
		sync.Mutex
		current *segment
		scarce  atomic.Bool // there is room for them (see tidyNotes)
	}

	mu struct {
		sync.Mutex
		regions    []*region
		segments   map[*segment]struct{}
		leases     map[bb.LeaseID]*segment
		partial    map[partialKey][]*segment
		occupied   map[*segment]struct{} // that a writer without a lease may still write to
		lastLease  bb.LeaseID
		segmentSeq uint64
		replacing  int // regions that are being deleted and made anew
		ready      bool
		open       bool      // recovery is over
		awaiting   []uint32  // users in the line for memory, as Await was last called
		short      bool      // memory could not be populated, which was logged
		regrown    time.Time // when regrow looked last
		closed     bool
	}

	drops dropped.List // of the disk tier

	found struct { // by recovery, constant afterwards but for uncommitted, which mu guards
		damage    []Damage
		claimed   map[bb.FileID][]bb.Generation // by damaged records
		origins   map[bb.FileID]Origin          // of files without an identity, but for OriginOwn
		foreign   []ForeignRegion
		adopted   int
		aside     int // regions that cannot be read
		recovered int

		memoryLost bool // regions of the disk tier belong to memory that is gone

		uncommitted dead // kept until FreeUncommitted
		took        time.Duration
	}
}

type partialKey struct {
	buffer unique.Handle[string]
	uid    uint32
	tier   bb.Tier
}

// validate sets defaults and reports everything that is wrong at once.
func (o *Options) validate() error {
	if err := o.setDefaults(); err != nil {
		return err
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.StateDir == "" {
		bad("no state folder")
	}
	if !slices.Contains([]MountPolicy{MountAuto, MountOff, MountRequire}, o.Mount) {
		bad("mount policy %q is none of auto, off, require", o.Mount)
	}
	if o.RegionBytes < 2*Unit || o.RegionBytes > MaxRegion || o.RegionBytes%Unit != 0 {
		bad("regions of %d bytes: must be whole MiB from 2 MiB to 1 GiB", o.RegionBytes)
	} else if o.MemoryBytes < o.RegionBytes {
		bad("%d bytes of memory hold no region of %d", o.MemoryBytes, o.RegionBytes)
	}
	if o.DiskBytes < 0 || o.DiskDir == "" && o.DiskBytes != 0 || o.DiskDir != "" && o.DiskBytes < o.RegionBytes {
		bad("%d bytes of disk in folder %q: a disk tier needs a folder and room for a region", o.DiskBytes, o.DiskDir)
	}
	if o.PopulateThreads < 0 {
		bad("%d threads to populate memory", o.PopulateThreads)
	}
	if err := errors.Join(errs...); err != nil {
		return &bb.Error{Kind: bb.Invalid, Op: "open store", Err: err}
	}
	return nil
}

func (o *Options) setDefaults() error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.StateDir != "" {
		abs, err := filepath.Abs(o.StateDir)
		if err != nil {
			return bb.Wrap("open store", o.StateDir, err)
		}
		o.StateDir = abs
	}
	if o.Mount == "" {
		o.Mount = MountAuto
	}
	if o.ShmDir == "" {
		o.ShmDir = folder.InShm(o.StateDir)
	}
	if o.MemoryBytes == 0 {
		total, err := folder.MachineMemory()
		if err != nil {
			return err
		}
		o.MemoryBytes = total / 4
	}
	if o.RegionBytes == 0 {
		// Several, since each belongs to one user.
		o.RegionBytes = min(MaxRegion, max(o.MemoryBytes/16, min(o.MemoryBytes, 64*Unit))) / Unit * Unit
		if o.DiskDir != "" && o.DiskBytes >= 2*Unit {
			o.RegionBytes = min(o.RegionBytes, o.DiskBytes/Unit*Unit)
		}
	}
	if o.PopulateThreads == 0 {
		o.PopulateThreads = defaultThreads()
	}
	return nil
}

// logBytes is the size of the region of the store's own records: 80 to 90 bytes
// for each evicted run of at most 4 MiB.
func (o *Options) logBytes() int64 {
	return min(o.RegionBytes, max(4*Unit, o.MemoryBytes/64/Unit*Unit))
}

// Open adopts the regions it finds, replays their commit records and starts to populate
// memory in the background. It fails with bb.Busy when another process has the regions
// (naming its pid), with bb.Unsupported when a region of this process's own user has an
// unknown format (nothing is touched then) and with bb.Invalid for bad options. Nothing
// that a user could have written to a region makes it fail.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Store{o: o, log: o.Log, ready: make(chan struct{})}
	s.populator.Start(o.PopulateThreads, s.populated)
	s.mu.segments = map[*segment]struct{}{}
	s.mu.leases = map[bb.LeaseID]*segment{}
	s.mu.partial = map[partialKey][]*segment{}
	s.mu.occupied = map[*segment]struct{}{}
	for i := range s.shards {
		s.shards[i].files = map[bb.FileID]*generation{}
		s.shards[i].anchors = map[*generation]*segment{}
		s.shards[i].ids = map[bb.FileID]identityAt{}
	}
	if err := s.open(ctx); err != nil {
		s.populator.Close()
		return nil, errors.Join(err, s.closeRegions())
	}
	return s, nil
}

func (s *Store) open(ctx context.Context) error {
	if err := s.takeFolders(); err != nil {
		return err
	}
	if s.o.Owner != nil {
		var err error
		if s.owner, err = s.o.Owner(ctx); err != nil {
			return err
		}
	}
	s.drops.Read(s.o.DiskDir, s.owner.Namespace, s.log)
	start := time.Now()
	found, err := findRegions(s.memDir, bb.TierMemory)
	if err != nil {
		return err
	}
	if s.o.DiskDir != "" {
		onDisk, err := findRegions(s.o.DiskDir, bb.TierDisk)
		if err != nil {
			return err
		}
		found = append(found, onDisk...)
	}
	if err := s.recover(ctx, s.leaveForeign(found)); err != nil {
		return err
	}
	if err := s.drops.Open(s.filesOf); err != nil {
		return err
	}
	s.found.took = time.Since(start)
	if err := s.sizeMemory(); err != nil {
		return err
	}
	return s.createRegions(ctx)
}

// takeFolders makes and locks the state folder and those of the tiers.
func (s *Store) takeFolders() error {
	err := os.MkdirAll(s.o.StateDir, 0o711)
	if err != nil {
		return bb.Wrap("open store", s.o.StateDir, err)
	}
	if !s.o.StateLocked {
		if err := s.lock(s.o.StateDir); err != nil {
			return err
		}
	}
	if s.memDir, s.mounted, err = memoryDir(&s.o); err != nil {
		return err
	}
	if err := s.lock(s.memDir); err != nil {
		return err
	}
	if s.o.DiskDir == "" {
		return nil
	}
	if err := os.MkdirAll(s.o.DiskDir, 0o711); err != nil {
		return bb.Wrap("open store", s.o.DiskDir, err)
	}
	return s.lock(s.o.DiskDir)
}

func (s *Store) lock(dir string) error {
	if s.o.StateLocked && dir == s.o.StateDir {
		return nil
	}
	if slices.ContainsFunc(s.locks, func(f *os.File) bool { return filepath.Dir(f.Name()) == dir }) {
		return nil // one folder for two purposes
	}
	f, err := folder.Lock(dir)
	if err == nil {
		s.locks = append(s.locks, f)
	}
	return err
}

// createRegions makes the regions that the options allow and recovery did not find, and
// queues everything for populating.
func (s *Store) createRegions(ctx context.Context) error {
	s.removeEmptyLinear()
	total := s.foreignBytes(bb.TierMemory)
	hasLog, any := false, len(s.found.foreign)+s.found.aside > 0
	for _, r := range s.mu.regions {
		if r.Tier == bb.TierMemory && !r.Log {
			total += int64(len(r.Mem))
			any = true
		}
		hasLog = hasLog || r.Log && !r.vacating
	}
	any = any || hasLog // there was memory before, and there may be some again (see regrow)
	if !hasLog {
		r, err := s.newRegion(bb.TierMemory, s.o.logBytes(), true)
		switch {
		case err == nil:
			s.mu.regions = append(s.mu.regions, r)
		case any && bb.KindOf(err) == bb.NoSpace:
			s.log.Error("create the region of the store's own records: no files can be made or evicted", "error", err)
		default:
			return err
		}
	}
	if !any && s.o.MemoryBytes < 2*Unit {
		return folder.Full("open store", s.memDir, "no region of 2 MiB fits")
	}
	for total+2*Unit <= s.o.MemoryBytes {
		size := min(s.o.RegionBytes, (s.o.MemoryBytes-total)/Unit*Unit)
		total += size
		if err := ctx.Err(); err != nil {
			return bb.Wrap("open store", s.memDir, err)
		}
		r, err := s.newRegion(bb.TierMemory, size, false)
		if any && bb.KindOf(err) == bb.NoSpace {
			s.log.Error("create region: less memory will be used", "error", err)
			break
		}
		if err != nil {
			return err
		}
		any = true
		s.mu.regions = append(s.mu.regions, r)
	}
	for _, r := range slices.Clone(s.mu.regions) {
		if r.Tier == bb.TierMemory && !r.Log && !r.Linear {
			s.populator.Add(r)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.open = true
	return nil
}

func (s *Store) newRegion(tier bb.Tier, size int64, log bool) (*region, error) {
	dir := s.memDir
	if tier == bb.TierDisk {
		dir = s.o.DiskDir
	}
	h := format.RegionHeader{ID: bb.RegionID(rand.Uint64() | 1), Size: size, Tier: tier, Instance: s.instance, Owner: s.owner}
	if log {
		h.Flags |= format.RegionLog
	}
	files, err := regionfile.Create(dir, h)
	if err != nil {
		return nil, err
	}
	r := newRegion(files)
	r.owner = s.owner
	return r, nil
}

// crash marks a point at which tests kill the process.
func (s *Store) crash(point string) {
	if s.o.crash != nil {
		s.o.crash(point)
	}
}

// Instance identifies this memory. It is the same after a restart that adopted regions.
func (s *Store) Instance() bb.InstanceID { return s.instance }

// Ready is closed when the first segment can be leased.
func (s *Store) Ready() <-chan struct{} { return s.ready }

// Region returns a region and its memory as mapped in this process. The memory may be
// used until RegionGone is called for the region, or Close.
func (s *Store) Region(id bb.RegionID) (RegionInfo, []byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.regionLocked(id)
	if err != nil {
		return RegionInfo{}, nil, err
	}
	return r.info(), r.Mem, nil
}

// RegionFile returns the store's own open file of a region, to be passed to a
// local client. The caller must not close it.
func (s *Store) RegionFile(id bb.RegionID) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.regionLocked(id)
	if err != nil {
		return nil, err
	}
	return r.File, nil
}

func (s *Store) regionLocked(id bb.RegionID) (*region, error) {
	for _, r := range s.mu.regions {
		if r.ID == id && !r.retiring && !s.mu.closed {
			return r, nil
		}
	}
	return nil, bb.E(bb.NotFound, "region", id.String(), "this node has no such region")
}

// Regions lists the regions that writers and readers may meet.
func (s *Store) Regions() []RegionInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []RegionInfo
	for _, r := range s.mu.regions {
		if !r.Log && !r.retiring {
			list = append(list, r.info())
		}
	}
	return list
}

// Close stops populating, unmaps the regions and leaves them for the next start
// (RemoveOnClose: deletes them). All pins must have been released, and no caller may
// use the store's memory any more. Pinned segments are an error, and their regions stay mapped.
// Idempotent.
func (s *Store) Close() error { return s.close(s.o.RemoveOnClose) }

// Destroy is Close that also deletes the regions and unmounts their file system.
func (s *Store) Destroy() error { return s.close(true) }

func (s *Store) close(remove bool) error {
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return nil
	}
	s.mu.closed = true
	s.mu.Unlock()
	s.populator.Close()
	s.making.Wait()
	s.spillMu.Lock() // a spill in progress ends at its next segment
	defer s.spillMu.Unlock()
	var paths []string
	for _, r := range s.mu.regions {
		paths = append(paths, r.Path)
	}
	err := s.closeRegions()
	if remove {
		err = errors.Join(err, s.removeAll(paths))
	}
	return err
}

// closeRegions unmaps the regions without pins, and unlocks the folders.
func (s *Store) closeRegions() error {
	var errs []error
	s.mu.Lock()
	busy := map[*region]int{}
	for g := range s.mu.segments {
		g.mu.Lock()
		if g.mu.pins > 0 {
			busy[g.mu.region]++
		}
		g.mu.Unlock()
	}
	for _, r := range s.mu.regions {
		if n := busy[r]; n > 0 {
			errs = append(errs, fmt.Errorf("region %s stays mapped: %d of its segments are pinned", r.Path, n))
			continue
		}
		errs = append(errs, r.Close())
	}
	s.mu.Unlock()
	errs = append(errs, s.drops.Close())
	for _, f := range s.locks {
		errs = append(errs, f.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return &bb.Error{Kind: bb.Internal, Op: "close store", Path: s.memDir, Err: err}
	}
	return nil
}

func (s *Store) removeAll(paths []string) error {
	var errs []error
	for _, p := range paths {
		errs = append(errs, regionfile.Remove(p))
	}
	errs = append(errs, os.Remove(filepath.Join(s.memDir, folder.LockName)))
	if s.mounted {
		errs = append(errs, unix.Unmount(s.memDir, unix.MNT_DETACH)) // clients may still have regions mapped
	}
	errs = append(errs, os.Remove(s.memDir))
	if s.o.DiskDir != "" && s.o.DiskDir != s.memDir {
		errs = append(errs, os.Remove(filepath.Join(s.o.DiskDir, folder.LockName)), os.Remove(dropped.Path(s.o.DiskDir)))
	}
	return bb.Wrap("remove regions", s.memDir, errors.Join(errs...))
}
