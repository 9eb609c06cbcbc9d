// Package lustre has the parts of the adaptor of file systems for Lustre alone: stripe layouts, targets that are
// full or do not answer, projects. It must never depend on a store, nor on the owners of its files.
package lustre

import (
	"fmt"
	"math"
	"sync"
)

// Magic is the number of Lustre in statfs(2) (LL_SUPER_MAGIC).
const Magic = 0x0BD00BD0

// leastLaidOut is the size of the smallest file, in bytes, that gets a layout of its own.
const leastLaidOut = 1 << 20

// Layout is the distribution of a file's bytes over Lustre's storage targets, the same for all of
// the file or another one for each part (a progressive layout). The components are in order and
// without gaps. The last one has no end.
type Layout []Component

// Component is the layout of the bytes of a file from the end of the component before on.
type Component struct {
	End        int64  // bytes from the file's start; 0: the end of the file
	Count      int    // storage targets; -1: all of them; 0: the file system's default
	StripeSize int64  // bytes, a multiple of 64 KiB; 0: the file system's default
	Pool       string // of storage targets; "": none
	// MDT: the bytes are on the metadata server, in one stripe as long as the component. Only the
	// first component can be there. It has neither targets nor a pool, and requests no stripe size.
	MDT  bool
	Made bool // its objects exist, so that Count is that of the targets that it has. Only read
}

// Rule is a row of the stripe table: the layout of files of at least MinSize bytes.
type Rule struct {
	MinSize int64
	Layout  Layout
}

// LayoutFor returns the layout of the row with the largest MinSize that a file of that size
// reaches, or nil if there is none. Then the directory's own layout holds. Files below leastLaidOut
// have none of their own, since it costs the metadata server a request, unless it puts their bytes
// there.
func LayoutFor(table []Rule, size int64) Layout {
	var best Rule
	found := false
	for _, r := range table {
		if size >= r.MinSize && (!found || r.MinSize > best.MinSize) {
			best, found = r, true
		}
	}
	if size < leastLaidOut && !best.Layout.onMDT() {
		return nil
	}
	return best.Layout
}

// onMDT reports whether a file's first bytes are on the metadata server.
func (l Layout) onMDT() bool { return len(l) > 0 && l[0].MDT }

const (
	minStripe     = 64 << 10 // LOV_MIN_STRIPE_SIZE
	maxStripes    = 2000     // LOV_MAX_STRIPE_COUNT
	maxPool       = 15       // LOV_MAXPOOLNAME
	maxComponents = 64       // of a read or requested layout; Lustre has no number of its own
)

// Check returns the first fault for which a metadata server would refuse to set the layout
// (lod_verify_striping in lustre/lod/lod_lov.c).
func (l Layout) Check() error {
	if len(l) == 0 || len(l) > maxComponents {
		return fmt.Errorf("a layout has 1 to %d components, not %d", maxComponents, len(l))
	}
	begin := int64(0)
	for i, c := range l {
		if err := c.check(); err != nil {
			return err
		}
		last := i == len(l)-1
		switch {
		case c.MDT && i > 0:
			return fmt.Errorf("component %d is on the metadata server, where only the first can be", i+1)
		case c.MDT && (last || c.End > math.MaxUint32):
			return fmt.Errorf("the component on the metadata server ends with the file or at 4G or more")
		case last && c.End != 0:
			return fmt.Errorf("the last component ends at %s, and not with the file", bytesText(c.End))
		case !last && c.End <= begin:
			return fmt.Errorf("component %d ends at %s, which is not behind the one before", i+1, bytesText(c.End))
		case c.End%max(c.StripeSize, minStripe) != 0:
			return fmt.Errorf("component %d ends at %s, which is no multiple of its stripe size", i+1, bytesText(c.End))
		}
		begin = c.End
	}
	return nil
}

func (c *Component) check() error {
	switch {
	case c.MDT && (c.Count != 0 || c.StripeSize != 0 || c.Pool != ""):
		return fmt.Errorf("a component on the metadata server has neither -c, -S nor -p")
	case c.Count < -1 || c.Count > maxStripes:
		return fmt.Errorf("stripe count %d is not 1 to %d, or -1 for all targets", c.Count, maxStripes)
	case c.StripeSize < 0 || c.StripeSize > math.MaxUint32 || c.StripeSize%minStripe != 0:
		return fmt.Errorf("stripe size %s is not a multiple of 64K below 4G", bytesText(c.StripeSize))
	}
	return checkPool(c.Pool)
}

// checkPool refuses names that lctl pool_new refuses. Names are letters, digits, - and _.
func checkPool(name string) error {
	if len(name) > maxPool {
		return fmt.Errorf("pool name %.20q is longer than %d bytes", name, maxPool)
	}
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' {
			return fmt.Errorf("pool name %q has other characters than letters, digits, - and _", name)
		}
	}
	return nil
}

// at returns the component that a byte of the file is in.
func (l Layout) at(off int64) (Component, bool) {
	for _, c := range l {
		if c.End == 0 || off < c.End {
			return c, true
		}
	}
	return Component{}, false
}

// PartSize returns how many bytes of a file of that size one worker writes at a time, at most as many as most, a multiple of
// 64 KiB: whole stripes, or parts of which a stripe is made, so that no part begins or ends within a stripe that another
// worker writes, and none waits for a lock that another one has. Stripes count from the start of the file, in each component
// (lov_stripe_offset in lustre/lov/lov_offset.c). The component counts in which the file ends, since it is the largest, as a
// rule.
func PartSize(most int64, l Layout, size int64) int64 {
	c, ok := l.at(max(size-1, 0))
	stripe := c.StripeSize
	switch {
	case !ok || stripe <= 0 || stripe%minStripe != 0 || most < minStripe:
		return most
	case stripe <= most:
		return most / stripe * stripe
	}
	for parts := (stripe + most - 1) / most; ; parts++ { // ends with parts of 64 KiB
		if stripe%parts == 0 && stripe/parts%minStripe == 0 {
			return stripe / parts
		}
	}
}

// Fewer describes the parts of a requested layout that a file did not get: fewer targets, since the file system
// or the pool has no more, another pool, or less on the metadata server, which has a limit for each file
// (lod_dom_stripesize_choose in lustre/lod/lod_lov.c). "": nothing.
func Fewer(asked, got Layout) string {
	if asked.onMDT() && len(got) > 0 {
		switch {
		case !got.onMDT():
			return "the layout requests data on the metadata server, and files have none there (lctl get_param lod.*.dom_stripesize)"
		case got[0].End != 0 && got[0].End < asked[0].End:
			return fmt.Sprintf("the layout requests %s on the metadata server, and files have %s there (lctl get_param lod.*.dom_stripesize)",
				bytesText(asked[0].End), bytesText(got[0].End))
		}
	}
	for i := range min(len(asked), len(got)) {
		a, g := &asked[i], &got[i]
		if a.Pool != "" && g.Pool != a.Pool {
			return fmt.Sprintf("the layout requests pool %s, and files are not put there", a.Pool)
		}
		if a.Count > 0 && g.Made && g.Count < a.Count {
			return fmt.Sprintf("the layout requests %d targets, and files are put on %d", a.Count, g.Count)
		}
	}
	return ""
}

// Told has the lines that were logged once. The zero value is ready for use. Its methods may be called
// concurrently.
type Told struct {
	mu    sync.Mutex
	texts map[string]bool
}

const maxTold = 64

// First reports whether a text is new, and not "".
func (t *Told) First(text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text == "" || t.texts[text] || len(t.texts) >= maxTold {
		return false
	}
	if t.texts == nil {
		t.texts = map[string]bool{}
	}
	t.texts[text] = true
	return true
}
