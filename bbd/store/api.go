package store

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"time"

	"forebay/bbd/store/folder"
	"forebay/bbd/store/format"
	"forebay/internal/bb"
)

// Sizes that callers may rely on.
const (
	Unit           = format.Unit // bytes; segments are whole units
	MaxSegment     = format.MaxSegment
	MaxRegion      = format.MaxRegion
	MaxExtents     = 1<<16 - 1 // extents of one commit in one segment
	DataAlign      = 64        // bytes; writers that align their data to this are fast and waste little
	MaxEvictedPart = 4 << 20   // bytes; evicted extents are joined up to this
)

// Whose bytes a region and a file are, as it is written beside them.
type (
	Owner    = format.Owner
	Identity = format.Identity
)

// ErrNoRoom means that no segment is free now. It is of kind bb.NoSpace. Evicting, spilling and
// populating can change that. Stats shows which of them.
var ErrNoRoom error = bb.E(bb.NoSpace, "lease", "", "no segment is free")

// ErrPopulating is the ErrNoRoom (errors.Is finds both) of a store whose memory is still being
// populated, since room comes by itself, see Ready and Stats.
var ErrPopulating error = &bb.Error{
	Kind: bb.NoSpace, Op: "lease",
	Err: populating{},
}

type populating struct{}

func (populating) Error() string        { return "no space: memory is still being populated" }
func (populating) Is(target error) bool { return target == ErrNoRoom }

// MountPolicy decides whether the store mounts a tmpfs of its own.
type MountPolicy = folder.MountPolicy

// The mount policies. Auto mounts where it may and else uses ShmDir.
const (
	MountAuto    = folder.MountAuto
	MountOff     = folder.MountOff
	MountRequire = folder.MountRequire
)

// Options set the place of a store's regions and their greatest size. The zero value of
// every field but StateDir means its default.
type Options struct {
	StateDir        string      // where the store's lock lies and, below mem/, its tmpfs is mounted
	StateLocked     bool        // the caller has StateDir by LockState
	Mount           MountPolicy // default MountAuto
	ShmDir          string      // memory tier where nothing is mounted; default a folder of /dev/shm named after StateDir
	MemoryBytes     int64       // of the memory tier; default a quarter of the machine's memory
	DiskDir         string      // disk tier; "" for none
	DiskBytes       int64       // of the disk tier
	RegionBytes     int64       // largest region, whole units, at most 1 GiB; default a sixteenth of MemoryBytes, from 64 MiB to 1 GiB
	PopulateThreads int         // default half of the processors, at least 1
	Shares          bool        // divide memory among users (tenants.go)
	RemoveOnClose   bool        // Close destroys regions and mount, for temporary stores
	// KeepUncommitted leaves segments in which recovery finds no committed data as they
	// are until FreeUncommitted, since writers that lost their daemon copy their uncommitted data
	// out of them.
	KeepUncommitted bool

	// Owner returns whose regions are this store's own. It is called once the folders are
	// locked and before any region is touched. Regions of another owner stay as they are,
	// and take their share of MemoryBytes and DiskBytes (Foreign lists them). Nil: all
	// regions are this store's own.
	Owner func(context.Context) (format.Owner, error)

	// RegionGone is called, with no lock held, before a region that changes its owner is unmapped
	// and deleted. Its memory may not be used any more once RegionGone has returned. Nil: no notice
	// is needed.
	RegionGone func(bb.RegionID)
	// RegionMade is called, with no lock held that a call of the store's other methods
	// would need, with each region that is made after Open has returned and its memory,
	// before any of it is leased or read. The maker of the region waits for it. Nil: no
	// notice is needed.
	RegionMade func(RegionInfo, []byte)

	Log *slog.Logger // default: discards

	crash func(point string) // tests kill the process here
}

// ForeignRegion is a region of another owner, which is neither used nor deleted.
type ForeignRegion struct {
	Path    string
	Tier    bb.Tier
	Bytes   int64 // of the file
	Held    int64 // in segments; the most that it may hold of files
	Owner   format.Owner
	Buffers []string // whose segments are in it
}

// LeaseRequest is a request for a segment to fill.
type LeaseRequest struct {
	Buffer string
	UID    uint32
	Bytes  int64   // requested size of the segment, rounded up to units, at most MaxSegment. A smaller one may come
	Min    int64   // bytes that the writer must be able to fill, records included; 0: any
	Fixed  bool    // nothing can move the bytes out of memory later, since there is no store to flush to and no disk tier
	Tier   bb.Tier // where the bytes belong. The segment is in memory all the same; those of the disk tier are the first to be spilled and evicted
}

// Lease is the right to fill [DataStart, RecordFloor) of a segment from the front. The writer
// leaves RecordCost free above its data for each commit that it will make. Commits lower the floor
// by as much.
type Lease struct {
	ID          bb.LeaseID
	Region      bb.RegionID
	Offset      int64 // of the segment in the region
	Length      int64 // of the segment
	DataStart   int64 // in the segment: first byte that the writer may fill
	RecordFloor int64 // in the segment: end of the writer's range, before the cost of its commits
	Mem         []byte
}

// RegionInfo describes a region.
type RegionInfo struct {
	ID    bb.RegionID
	Path  string
	Bytes int64
	Tier  bb.Tier
	UID   uint32
	Owned bool // false; no user owns it yet, UID means nothing
}

// NewExtent is one run of bytes that a writer has put into a segment it leases.
type NewExtent struct {
	Lease         bb.LeaseID
	SegmentOffset int64  // of its first byte, in the segment
	FileOffset    int64  // of its first byte, in the file
	Length        int64  // bytes, more than 0
	Checksum      uint64 // CRC-64/NVME of them
}

// Commit makes extents part of a file, all or none of them.
type Commit struct {
	File       bb.FileID
	Generation bb.Generation
	Base       bb.Generation // the generation that this one started from; the same in every commit of it; 0: none
	Fresh      bool          // the generation starts from nothing, with any Base
	// Whole: the extents are the whole visible content of the generation, and start from nothing. A
	// present generation, sealed or not, shows them in place of its former extents, in one step,
	// and can be committed to again. If it has bytes that the extents do not cover, the error is
	// bb.Exists, and nothing is changed.
	Whole   bool
	Buffer  string
	Extents []NewExtent // none: the generation exists with its base's content
}

// ExtentState is the place of an extent's bytes.
type ExtentState uint8

// The states of an extent of a snapshot.
const (
	Resident ExtentState = iota
	Evicted              // only on the backing store
	Hole                 // never written: zeros
)

// String returns the state's name.
func (s ExtentState) String() string {
	switch s {
	case Resident:
		return "resident"
	case Evicted:
		return "evicted"
	default:
		return "hole"
	}
}

// Extent is one run of a snapshot's bytes. Region and offsets hold while its range is
// pinned.
//
// A writer's checksum covers all bytes of one write. If a part of them was overwritten since, the
// extent is the visible piece and Whole… is the range of Checksum: bytes [WholeOffset,
// WholeOffset+WholeLength) of the region, whose piece [Cut, Cut+Length) this extent is. Likewise a
// piece of an evicted extent. The whole is bytes [FileOffset-Cut, FileOffset-Cut+WholeLength) of
// the copy on the backing store, and Fill needs all of it.
type Extent struct {
	State      ExtentState
	Tier       bb.Tier
	FileOffset int64
	Length     int64

	Region       bb.RegionID
	RegionOffset int64 // of the first byte of this extent

	Checksum    uint64 // CRC-64/NVME of the whole extent; of a hole: of its zeros
	WholeOffset int64  // in the region
	WholeLength int64
	Cut         int64 // bytes of the whole extent before this piece
}

// FillExtent is one run of bytes fetched from the backing store into a leased segment.
type FillExtent struct {
	Lease         bb.LeaseID
	SegmentOffset int64
	FileOffset    int64
	Length        int64
}

// GenerationInfo describes a generation that the store has.
type GenerationInfo struct {
	Generation bb.Generation
	Base       bb.Generation
	Size       int64
	Resident   int64 // bytes in memory or on disk
	Evicted    int64 // bytes only on the backing store
	Dirty      int64 // bytes without a confirmed copy on the backing store
	Sealed     bool
	Clean      bool
	UIDs       []uint32 // users in whose regions its extents lie; they could have forged them
}

// FileInfo describes a file that the store has, oldest generation first.
type FileInfo struct {
	File        bb.FileID
	Buffer      string
	Generations []GenerationInfo
	Identity    *format.Identity // nil: it has none, for which Origin is the reason
	Origin      Origin
}

// Origin is the reason why a file has no identity.
type Origin uint8

const (
	OriginOwn       Origin = iota // it was written here and nothing of it was acknowledged, or it was dropped
	OriginOlder                   // a release without identities wrote it
	OriginForgotten               // its identity was in memory that is gone, and its bytes were on disk
)

// Damage describes bytes of a region that recovery could not read.
type Damage struct {
	Region  bb.RegionID
	Path    string // of the region
	Segment int64  // offset of the segment in the region; -1: the region's own header
	From    int64  // in the segment (or region): the unreadable bytes
	To      int64
	Buffer  string // "" where unknown
	What    string
	Mended  bool // from a copy; nothing is lost by it

	// The file and generation that the damaged bytes claim, without a guarantee. 0: nothing sensible.
	File       bb.FileID
	Generation bb.Generation
}

// TierStats are the bytes of one tier.
type TierStats struct {
	Capacity  int64 // the bound by the options
	Total     int64 // in regions that exist
	Populated int64 // of them usable without a page fault
	Leased    int64 // in segments that writers hold
	Used      int64 // in segments of any kind
	Live      int64 // visible in some generation or snapshot
	Dirty     int64
	Clean     int64
	Evictable int64 // in segments that Evict could free now
	Spillable int64 // in segments that Spill could move now (memory tier)
	Misplaced int64 // in those of them that are finished and belong on disk
	Pinned    int64 // in segments that are pinned
	Occupied  int64 // in segments whose writers lost their leases and may still be writing; not to be freed yet
	Free      int64 // populated and in no segment
	Kept      int64 // part of Free that is for newcomers and root alone
	Waste     int64 // used, and neither live, leased nor to be leased again: headers, records, alignment, overwritten and dropped bytes
}

// BufferStats are the bytes of one buffer on this node.
type BufferStats struct {
	Resident int64 // bytes its segments take, leased ones whole
	Dirty    int64
}

// Stats is the state of a store at one moment. Parts of it may be a commit apart.
type Stats struct {
	Instance     bb.InstanceID
	Memory, Disk TierStats
	MemoryDir    string // folder of the memory tier
	Populating   bool
	Regions      int
	Segments     int
	Leases       int
	Files        int
	Extents      int
	Snapshots    int
	Buffers      map[string]BufferStats

	Adopted   int           // regions found at start
	Recovered int           // records replayed at start
	Damaged   int           // pieces of Damage found at start
	Foreign   int64         // bytes of regions of other owners
	Recovery  time.Duration // the time that Open spent on it
}

func defaultThreads() int { return max(1, runtime.GOMAXPROCS(0)/2) }

var errClosed = errors.New("the store is closed")
