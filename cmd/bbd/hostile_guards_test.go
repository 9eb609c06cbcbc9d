package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"forebay/internal/bbdtest"
	"forebay/internal/hostiletest"
)

// guards names the present guard against each kind of attack that no known release has admitted.
// Without it, they succeed. All other kinds succeed at beforeMending:
//
//	weakness                               kinds
//	the daemon sends, reads or writes as   endpoint of its own, files named by a URL, store that is replaced, directory that
//	root                                   changes, directories of others, root by a certificate
//	the daemon waits, or serves a pipe     FIFOs named by a URL, pipes in the store
//	the daemon ends, or does not start     a region that is cut, forged headers
//	the daemon trusts pages                forged records, regions of nobody
//	root or the other user gets no room    sessions, silent connections, TCP without proof, leases, memory, writers that
//	                                       wait, regions that stay held
//	the daemon holds more than its limit   open files, unfinished requests
var guards = map[string]bbdtest.Edit{
	"bad frames":          {File: "internal/wire/frame.go", Old: `return h, nil, &FrameError{"its checksum does not fit"}`, New: `panic("its checksum does not fit")`},
	"bad frames over TCP": {File: "internal/wire/frame.go", Old: `return h, nil, &FrameError{"its checksum does not fit"}`, New: `panic("its checksum does not fit")`},
	"bad requests": {
		File: "bbd/rpc/session.go", Old: `return &wire.FrameError{Reason: fmt.Sprintf("%v holds no such message: %v", head.Type, err)}`,
		New: `panic(fmt.Sprintf("%v holds no such message: %v", head.Type, err))`,
	},
	"proofs that are none":    {File: "bbd/rpc/identity.go", Old: ` || !x.CheckClient(prove.Proof, keys, hello) {`, New: ` {`},
	"tokens that are changed": {File: "bbd/rpc/identity.go", Old: ` || !x.CheckClient(prove.Proof, keys, hello) {`, New: ` {`},
	"a region's bytes":        {File: "bbd/store/snapshot.go", Old: `if got := checksum.Sum(whole); got != e.sum {`, New: `if got := checksum.Sum(whole); got != e.sum && false {`},
	"a region's journal": {
		File: "bbd/store/regionfile/journal.go", Old: `JournalOf(r.Path)+Unfinished, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)`,
		New: `JournalOf(r.Path)+Unfinished, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o666)`,
	},
}

// TestGuards finds each guard in the source, where TestAttacksBite removes it.
func TestGuards(t *testing.T) {
	for kind, edit := range guards {
		if !slices.Contains(hostiletest.Kinds(), kind) {
			t.Errorf("there is no attack %q", kind)
		}
		text, err := os.ReadFile(filepath.Join("..", "..", edit.File))
		if n := strings.Count(string(text), edit.Old); err != nil || n != 1 {
			t.Errorf("%s: %s has %q %d times, want once: %v", kind, edit.File, edit.Old, n, err)
		}
	}
}
