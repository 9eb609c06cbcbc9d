package lustre

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// The attribute lustre.lov of a file is its layout, as liblustreapi sets and reads it (llapi_layout_to_lum in
// lustre/utils/liblustreapi_layout.c). All numbers are in the byte order of the machine
// (lustre/include/uapi/linux/lustre/lustre_user.h):
//
//	struct lov_user_md_v1              struct lov_comp_md_v1           struct lov_comp_md_entry_v1
//	 0 u32 lmm_magic 0x0BD10BD0         0 u32 lcm_magic 0x0BD60BD0      0 u32 lcme_id
//	 4 u32 lmm_pattern                  4 u32 lcm_size, of all          4 u32 lcme_flags
//	 8     lmm_oi                       8 u32 lcm_layout_gen            8 u64 lcme_extent.e_start
//	24 u32 lmm_stripe_size             12 u16 lcm_flags                16 u64 lcme_extent.e_end
//	28 u16 lmm_stripe_count            14 u16 lcm_entry_count          24 u32 lcme_offset, of its md
//	30 u16 lmm_stripe_offset           16 u16 lcm_mirror_count - 1     28 u32 lcme_size, of its md
//	32     lmm_objects                 18     padding                  32 u32 lcme_layout_gen
//	                                   32     lcm_entries              36     timestamp, padding
//	lov_user_md_v3, magic 0x0BD30BD0:                                  48
//	32     lmm_pool_name, 16 bytes
//	48     lmm_objects
const (
	magicV1        = 0x0BD10BD0
	magicV3        = 0x0BD30BD0
	magicComposite = 0x0BD60BD0

	sizeV1        = 32
	sizeV3        = 48
	sizeComposite = 32
	sizeEntry     = 48
	sizePool      = 16

	patternRAID0 = 0x1
	patternMDT   = 0x100

	entryMade   = 0x10   // LCME_FL_INIT: its objects exist
	anyTarget   = 0xFFFF // the metadata server chooses the first
	allTargets  = 0xFFFF // LOV_ALL_STRIPES
	endOfFile   = math.MaxUint64
	layoutAttr  = "lustre.lov"
	mostLayouts = 64 << 10 // bytes, XATTR_SIZE_MAX
)

// DelayCreate are the flags of open(2) by which Lustre makes a file without objects, so that its layout can be set
// (O_LOV_DELAY_CREATE of lustre_user.h). Other file systems ignore both for a regular file.
const DelayCreate = syscall.O_NOCTTY | syscall.O_ASYNC

// attr returns the value of layoutAttr that sets the layout.
func (l Layout) attr() []byte {
	order := binary.NativeEndian
	if len(l) == 1 {
		return l[0].attr(nil)
	}
	head, entries := make([]byte, 0, sizeComposite), make([]byte, 0, len(l)*sizeEntry)
	var mds []byte
	begin := uint64(0)
	for i := range l {
		end := uint64(endOfFile)
		if l[i].End != 0 {
			end = uint64(l[i].End)
		}
		at := len(mds)
		mds = l[i].attr(mds)
		entries = append(entries, make([]byte, 8)...) // the metadata server gives it an id
		entries = order.AppendUint64(entries, begin)
		entries = order.AppendUint64(entries, end)
		entries = order.AppendUint32(entries, uint32(sizeComposite+len(l)*sizeEntry+at))
		entries = order.AppendUint32(entries, uint32(len(mds)-at))
		entries = append(entries, make([]byte, sizeEntry-32)...)
		begin = end
	}
	head = order.AppendUint32(head, magicComposite)
	head = order.AppendUint32(head, uint32(sizeComposite+len(entries)+len(mds)))
	head = append(head, make([]byte, 6)...)
	head = order.AppendUint16(head, uint16(len(l)))
	head = append(head, make([]byte, sizeComposite-len(head))...)
	return bytes.Join([][]byte{head, entries, mds}, nil)
}

// attr appends the lov_user_md of one component.
func (c *Component) attr(b []byte) []byte {
	order := binary.NativeEndian
	magic := uint32(magicV1)
	if c.Pool != "" {
		magic = magicV3
	}
	b = order.AppendUint32(b, magic)
	pattern, stripe := uint32(patternRAID0), uint32(c.StripeSize)
	if c.MDT { // the servers refuse a stripe that does not fill the component (lod_verify_striping)
		pattern, stripe = patternMDT, uint32(c.End)
	}
	b = order.AppendUint32(b, pattern)
	b = append(b, make([]byte, 16)...)
	b = order.AppendUint32(b, stripe)
	b = order.AppendUint16(b, uint16(c.Count)) // -1: allTargets
	b = order.AppendUint16(b, anyTarget)
	if c.Pool != "" {
		b = append(append(b, c.Pool...), make([]byte, sizePool-len(c.Pool))...)
	}
	return b
}

var errAttr = errors.New("malformed attribute " + layoutAttr)

// decode reads the attribute of a file. Of a mirrored file it returns the first mirror, of a layout
// of an unknown kind an error.
func decode(b []byte) (Layout, error) {
	order := binary.NativeEndian
	if len(b) < sizeComposite {
		return nil, errAttr
	}
	if order.Uint32(b) != magicComposite {
		c, err := decodeOne(b)
		c.Made = true
		return Layout{c}, err
	}
	count := int(order.Uint16(b[14:]))
	if count == 0 || count > maxComponents || len(b) < sizeComposite+count*sizeEntry {
		return nil, errAttr
	}
	l := make(Layout, 0, count)
	begin := uint64(0)
	for i := range count {
		entry := b[sizeComposite+i*sizeEntry:][:sizeEntry]
		start, end := order.Uint64(entry[8:]), order.Uint64(entry[16:])
		if start != begin {
			break // the next mirror
		}
		at, size := uint64(order.Uint32(entry[24:])), uint64(order.Uint32(entry[28:]))
		if end <= start || at+size > uint64(len(b)) {
			return nil, errAttr
		}
		c, err := decodeOne(b[at : at+size])
		if err != nil {
			return nil, err
		}
		if c.Made = order.Uint32(entry[4:])&entryMade != 0; end <= math.MaxInt64 {
			c.End = int64(end)
		}
		l = append(l, c)
		if begin = end; end == endOfFile {
			break
		}
	}
	if len(l) == 0 {
		return nil, errAttr
	}
	return l, nil
}

// decodeOne reads a lov_user_md.
func decodeOne(b []byte) (c Component, err error) {
	order := binary.NativeEndian
	if len(b) < sizeV1 {
		return c, errAttr
	}
	switch magic := order.Uint32(b); magic {
	case magicV1:
	case magicV3:
		if len(b) < sizeV3 {
			return c, errAttr
		}
		name, _, _ := bytes.Cut(b[sizeV1:sizeV3], []byte{0})
		c.Pool = string(name)
		if err := checkPool(c.Pool); err != nil {
			return c, fmt.Errorf("%w: %w", errAttr, err)
		}
	default:
		return c, fmt.Errorf("%w: it begins with %#x", errAttr, magic)
	}
	c.MDT = order.Uint32(b[4:])&patternMDT != 0
	c.StripeSize, c.Count = int64(order.Uint32(b[24:])), int(order.Uint16(b[28:]))
	if c.Count == allTargets {
		c.Count = -1
	}
	return c, nil
}

// Set gives a file that was made with DelayCreate its layout. Without, the first write gives it the directory's.
func (l Layout) Set(f *os.File) error {
	for {
		err := unix.Fsetxattr(int(f.Fd()), layoutAttr, l.attr(), 0)
		if err != unix.EINTR {
			return os.NewSyscallError("fsetxattr", err)
		}
	}
}

// Of returns the layout of an open file, which the client has with the file, as a rule. It sends no
// request to the server. A file system without layouts, a file without objects, and an unknown
// layout have none.
func Of(f *os.File) Layout {
	var small [1 << 10]byte
	for b := small[:]; ; b = make([]byte, mostLayouts) {
		n, err := unix.Fgetxattr(int(f.Fd()), layoutAttr, b)
		switch {
		case err == unix.EINTR || err == unix.ERANGE && len(b) < mostLayouts:
			continue
		case err != nil:
			return nil
		}
		l, err := decode(b[:n])
		if err != nil {
			return nil
		}
		return l
	}
}
