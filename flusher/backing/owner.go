package backing

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"strings"
	"time"

	"forebay/internal/bb"
)

// Names of unfinished work:
//
//	.forebay-IIIIIIIIIIIIIIII-LLLLLLLLLLLLLLLL-RRRRRRRRRRRRRRRR.tmp
//	         │                │                └ random
//	         │                └ life: one run of one process
//	         └ instance of the daemon; survives a restart that adopts its regions
const (
	tempPrefix = ".forebay-"
	tempSuffix = ".tmp"
	tempLength = len(tempPrefix) + 3*16 + 2 + len(tempSuffix)
)

// PeerAge is the default age at which the unfinished work of an unknown instance is
// abandoned: far longer than any upload lasts. See Owner.Abandoned.
const PeerAge = 7 * 24 * time.Hour

// Owner marks unfinished work, so that a crash's remains can be distinguished from work of a living
// process.
type Owner struct {
	Instance bb.InstanceID
	Life     uint64
	// PeerAge is how old the work of another instance must be before it counts as abandoned. 0
	// means the constant PeerAge.
	PeerAge time.Duration
	// Peers are other daemons and earlier runs, or nil if they are unknown.
	Peers Peers
}

// Peers reports which daemons have ended.
type Peers interface {
	// Ended reports whether it is certain that a daemon's life is over. An unknown instance has not
	// ended, since it may be another cluster's.
	Ended(instance bb.InstanceID, life uint64) bool
}

// NewOwner returns the owner for this process. Its life is derived from values of the kernel that
// only this run of it has.
func NewOwner(instance bb.InstanceID) Owner {
	h := fnv.New64a()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // absent: pid and start time are enough
	h.Write(boot)
	h.Write([]byte(strconv.Itoa(os.Getpid())))
	h.Write(startTime())
	return Owner{Instance: instance, Life: h.Sum64()}
}

// startTime returns the field of /proc/self/stat with the start of the process,
// in ticks since boot (proc(5), field 22).
func startTime() []byte {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return nil
	}
	// The command in field 2 is in parentheses and may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const startTime = 22 - 3
	if len(fields) <= startTime {
		return nil
	}
	return fields[startTime]
}

// TempName returns a fresh name for unfinished work.
func (o Owner) TempName() string {
	var random [8]byte
	rand.Read(random[:]) // never fails, since crypto/rand ends the process instead
	life := bb.InstanceID(o.Life).String()
	return tempPrefix + o.Instance.String() + "-" + life + "-" + hex.EncodeToString(random[:]) + tempSuffix
}

// A file that is about to be removed is moved aside first, and then compared with the version that may be
// removed, which its name has from then on:
//
//	.forebay-IIIIIIIIIIIIIIII-LLLLLLLLLLLLLLLL-VVVVVVVVVVVVVVVV.rm.NAME
//	                                           │                   └ its former name
//	                                           └ hash of the Version that may be removed
const (
	asideMark   = ".rm."
	asideLength = tempLength - len(tempSuffix) + len(asideMark)
)

// AsideName returns the name that a file gets before it is removed if it is a version. If the name
// would be too long, ok is false.
func (o Owner) AsideName(base string, is Version) (name string, ok bool) {
	if asideLength+len(base) > bb.MaxName {
		return "", false
	}
	return fmt.Sprintf("%s%s-%s-%016x%s%s", tempPrefix, o.Instance, bb.InstanceID(o.Life), is.hash(), asideMark, base), true
}

func (v Version) hash() uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", v.ETag, v.Size)
	return h.Sum64()
}

// Aside returns the former name of a file that was moved aside to be removed. ok is false if it was not.
func Aside(name string) (base string, ok bool) {
	name = name[strings.LastIndexByte(name, '/')+1:]
	if _, _, ok = parseTemp(name); !ok || len(name) <= asideLength || name[asideLength-len(asideMark):asideLength] != asideMark {
		return "", false
	}
	return name[asideLength:], true
}

// MayRemove reports whether the name of a file that was moved aside allows the removal of a version.
func MayRemove(name string, is Version) bool {
	name = name[strings.LastIndexByte(name, '/')+1:]
	_, ok := Aside(name)
	return ok && name[asideLength-len(asideMark)-16:asideLength-len(asideMark)] == fmt.Sprintf("%016x", is.hash())
}

// IsTemp reports whether the last part of a name was made by some Owner's TempName or AsideName.
func IsTemp(name string) bool {
	_, _, ok := parseTemp(name)
	return ok
}

// Ended reports whether the daemon that made the work of that name is known to be gone:
// an earlier life of the same instance made it, or another one that has ended by Peers.
// Names that no Owner made have no daemon.
func (o Owner) Ended(name string) bool {
	instance, life, ok := parseTemp(name)
	switch {
	case !ok:
		return false
	case instance == o.Instance && o.Instance != 0:
		return life != o.Life
	default:
		return o.Peers != nil && o.Peers.Ended(instance, life)
	}
}

// Abandoned is Ended, and besides counts work of an unknown instance as abandoned if it changed
// last so long ago. It is for stores whose unfinished work proves by its content that it is ours. A
// name alone may be a user's.
func (o Owner) Abandoned(name string, age time.Duration) bool {
	instance, _, ok := parseTemp(name)
	switch {
	case !ok:
		return false
	case o.Ended(name):
		return true
	case instance == o.Instance:
		return false
	case o.PeerAge > 0:
		return age > o.PeerAge
	default:
		return age > PeerAge
	}
}

func parseTemp(name string) (instance bb.InstanceID, life uint64, ok bool) {
	name = name[strings.LastIndexByte(name, '/')+1:]
	const marks = tempLength - len(tempSuffix)
	switch {
	case len(name) < tempLength || !strings.HasPrefix(name, tempPrefix):
		return 0, 0, false
	case name[marks:] != tempSuffix && (!strings.HasPrefix(name[marks:], asideMark) || len(name) == asideLength):
		return 0, 0, false
	}
	parts := strings.Split(name[len(tempPrefix):marks], "-")
	if len(parts) != 3 {
		return 0, 0, false
	}
	var v [3]uint64
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 16, 64)
		if err != nil || len(part) != 16 {
			return 0, 0, false
		}
		v[i] = n
	}
	return bb.InstanceID(v[0]), v[1], true
}
