package lustretest

import (
	"encoding/binary"
	"math"
	"strings"
	"syscall"
)

// component is the layout of a part of a file, and the targets of its objects.
type component struct {
	start, end uint64 // bytes; end is eof for the last
	count      int    // of requested targets; all: 0xFFFF; 0: the default
	stripe     int64  // bytes; 0: the default
	pool       string
	objects    []int // targets; nil: they are not made yet
	onMDT      bool  // the bytes are on the metadata target
}

const (
	eof        = math.MaxUint64
	all        = 0xFFFF
	stripeUnit = 64 << 10 // LOV_MIN_STRIPE_SIZE
	magicV1    = 0x0BD10BD0
	magicV3    = 0x0BD30BD0
	magicComp  = 0x0BD60BD0
	raid0      = 0x1
	onMDT      = 0x100 // LOV_PATTERN_MDT
)

// parse reads and checks a new layout, as lod_verify_striping of lustre/lod/lod_lov.c does. The metadata server
// refuses a layout by EINVAL. A component on the metadata target is made as short as the parameter dom_stripesize
// (most) allows, or left out (lod_dom_stripesize_choose).
func parse(v []byte, most int64) ([]component, syscall.Errno) {
	n := binary.NativeEndian
	if len(v) < 32 {
		return nil, syscall.EINVAL
	}
	if n.Uint32(v) != magicComp {
		c, errno := parseOne(v)
		if c.end = eof; c.onMDT {
			return nil, syscall.EINVAL // llapi_stripe_param_verify: "must be specified with -E"
		}
		return []component{c}, errno
	}
	entries := int(n.Uint16(v[14:]))
	if int(n.Uint32(v[4:])) != len(v) || entries == 0 || n.Uint16(v[16:]) != 0 {
		return nil, syscall.EINVAL
	}
	var comps []component
	prev := uint64(0)
	for i := range entries {
		e := v[32+48*i:][:48]
		at, size := n.Uint32(e[24:]), n.Uint32(e[28:])
		if int(at)+int(size) > len(v) {
			return nil, syscall.ERANGE // ll_adjust_lum
		}
		c, errno := parseOne(v[at:][:size])
		if errno != 0 {
			return nil, errno
		}
		c.start, c.end = n.Uint64(e[8:]), n.Uint64(e[16:])
		stripe := uint64(c.stripe)
		if stripe == 0 {
			stripe = defaultStripe
		}
		if c.start != prev || c.start >= c.end || c.end != eof && c.end%stripe != 0 || c.end != eof && c.end%stripeUnit != 0 {
			return nil, syscall.EINVAL
		}
		if c.onMDT && (i > 0 || stripe != c.end || c.count != 0 || c.pool != "") {
			return nil, syscall.EINVAL
		}
		prev = c.end
		comps = append(comps, c)
	}
	return shorten(comps, most)
}

// shorten cuts a component on the metadata target to the allowed size, and gives the rest to the next
// one.
func shorten(comps []component, most int64) ([]component, syscall.Errno) {
	c := &comps[0]
	if !c.onMDT || c.stripe <= most {
		return comps, 0
	}
	c.stripe, c.end = most, uint64(most)
	switch {
	case len(comps) == 1:
		return nil, syscall.EFBIG
	case most == 0:
		comps = comps[1:]
		comps[0].start = 0
	default:
		comps[1].start = c.end
	}
	return comps, 0
}

// parseOne reads a lov_user_md_v1 or v3 (lod_verify_v1v3).
func parseOne(v []byte) (c component, errno syscall.Errno) {
	n := binary.NativeEndian
	if len(v) < 32 {
		return c, syscall.EINVAL
	}
	switch n.Uint32(v) {
	case magicV1:
	case magicV3:
		if len(v) < 48 {
			return c, syscall.EINVAL
		}
		c.pool = strings.TrimRight(string(v[32:48]), "\x00")
	default:
		return c, syscall.EINVAL
	}
	c.stripe, c.count = int64(n.Uint32(v[24:])), int(n.Uint16(v[28:]))
	pattern := n.Uint32(v[4:])
	if c.onMDT = pattern == onMDT; pattern != raid0 && !c.onMDT || c.stripe%stripeUnit != 0 {
		return c, syscall.EINVAL
	}
	return c, 0
}

// attr is the result of getxattr for a file. The targets of each object are behind their component. One plain layout
// has the number of its objects as its count (ll_getxattr_lov of lustre/llite/xattr.c).
func attr(comps []component) []byte {
	n := binary.NativeEndian
	if len(comps) == 1 && !comps[0].onMDT {
		return one(&comps[0])
	}
	head := make([]byte, 32+48*len(comps))
	var mds []byte
	for i := range comps {
		md := one(&comps[i])
		e := head[32+48*i:]
		n.PutUint32(e, uint32(i+1))
		if comps[i].objects != nil {
			n.PutUint32(e[4:], 0x10) // LCME_FL_INIT
		}
		n.PutUint64(e[8:], comps[i].start)
		n.PutUint64(e[16:], comps[i].end)
		n.PutUint32(e[24:], uint32(len(head)+len(mds)))
		n.PutUint32(e[28:], uint32(len(md)))
		mds = append(mds, md...)
	}
	n.PutUint32(head, magicComp)
	n.PutUint32(head[4:], uint32(len(head)+len(mds)))
	n.PutUint16(head[14:], uint16(len(comps)))
	return append(head, mds...)
}

func one(c *component) []byte {
	n := binary.NativeEndian
	md := make([]byte, 32)
	n.PutUint32(md, magicV1)
	n.PutUint32(md[4:], raid0)
	if c.onMDT {
		n.PutUint32(md[4:], onMDT)
	}
	n.PutUint32(md[24:], uint32(c.stripe))
	n.PutUint16(md[28:], uint16(c.count))
	if c.objects != nil {
		n.PutUint16(md[28:], uint16(len(c.objects)))
	}
	if c.pool != "" {
		n.PutUint32(md, magicV3)
		md = append(md, append([]byte(c.pool), make([]byte, 16-len(c.pool))...)...)
	}
	for _, target := range c.objects {
		object := make([]byte, 24)
		n.PutUint32(object[20:], uint32(target))
		md = append(md, object...)
	}
	return md
}
