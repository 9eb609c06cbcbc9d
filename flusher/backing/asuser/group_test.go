package asuser

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"forebay/flusher/backing"
	"forebay/flusher/backing/backingtest"
	"forebay/flusher/backing/posix"
	"forebay/internal/bb"
)

// A worker is killed while it puts many small files, whose syncs are shared, those of their bytes
// on XFS alone. Confirmed files are there as a whole, and no other name has a part. Once put again,
// all are there, and the next run removes the remains.
func TestKilledInAGroup(t *testing.T) {
	needRoot(t)
	const files = 48
	content := func(i int) []byte { return backingtest.Data(int64(500+i), uint64(i+1)) }
	for _, after := range []int64{0, 1, 2, 10, 24, 40} {
		t.Run(fmt.Sprint("after ", after), func(t *testing.T) {
			w, dir := workers(t, Options{}), home(t, alice)
			owner := backing.Owner{Instance: 7, Life: 1}
			s, err := Open(t.Context(), w, User{alice, alice}, dir, posix.Options{Owner: owner})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			pid := s.pid(t)
			var done atomic.Int64
			var once sync.Once
			kill := func() {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			}
			putAll := func() []error {
				errs := make([]error, files)
				var all sync.WaitGroup
				for i := range files {
					all.Go(func() {
						if _, errs[i] = s.Put(t.Context(), fmt.Sprintf("d%d/f%d", i%3, i), backing.NewBytes(content(i)), backing.PutOptions{}); errs[i] == nil && done.Add(1) > after {
							once.Do(kill)
						}
					})
				}
				all.Wait()
				return errs
			}
			judge := func(errs []error) {
				t.Helper()
				for i, err := range errs {
					got, readErr := os.ReadFile(filepath.Join(dir, fmt.Sprintf("d%d/f%d", i%3, i)))
					whole := readErr == nil && slices.Equal(got, content(i))
					if err == nil && !whole || err != nil && !whole && !os.IsNotExist(readErr) {
						t.Errorf("file %d: %v, and then %d bytes, %v", i, err, len(got), readErr)
					}
					if err != nil && bb.KindOf(err) != bb.Unavailable {
						t.Errorf("file %d: %v, of kind %v", i, err, bb.KindOf(err))
					}
				}
			}
			judge(putAll())
			once.Do(kill)
			for s.pid(t) == pid { // until the daemon's side has detected it
				runtime.Gosched()
			}
			errs := putAll()
			judge(errs)
			if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
				t.Errorf("file %d, again: %v", i, errs[i])
			}
			owner.Life++
			next, err := Open(t.Context(), w, User{alice, alice}, dir, posix.Options{Owner: owner})
			if err != nil {
				t.Fatal(err)
			}
			defer next.Close()
			if _, err := next.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
			if left, err := next.Leftovers(t.Context(), backing.Within{Deep: true}); err != nil || len(left) > 0 {
				t.Errorf("%v left, %v", left, err)
			}
		})
	}
}
