// Package leftovers records where this daemon works in backing stores, and removes the unfinished work of
// daemons that were killed there. It must never depend on a buffer, nor decide which store a user
// may use.
package leftovers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"forebay/bbd/access"
	"forebay/bbd/lockrank"
	"forebay/flusher/backing"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
	"forebay/meta/gossip"
)

// A daemon that is killed leaves unfinished work in stores: temporary files beside the files
// that they were to become, and announced uploads. Their names hold the daemon's instance
// and life (backing.Owner). Three daemons may carry the work on, and each removes the rest
// of its predecessor:
//
//	the same one, started again    the roots of its buffers, and the
//	                               directories that its notes name
//	another one, of the cluster    the directories that its tasks and retries write to; and
//	                               the roots of all buffers, once the other is gone
//	nobody                         bbctl doctor --clean
//
// A stage-out goes anywhere, so it notes its directories in the state folder before it writes to
// them. When it has ended, it removes the note.

const (
	instancesFile = "instances"  // below the state folder: the instances that this state has had
	notesDir      = "unfinished" // below the state folder: a file for each stage-out under way
	maxInstances  = 1000
	maxSwept      = 4096 // directories that are recorded as checked
)

// Options are this daemon's identity, and its ways to reach stores.
type Options struct {
	StateDir string // has the notes
	Instance bb.InstanceID
	Members  func() []gossip.Member // of the cluster; nil: this daemon is alone
	// Open opens a store with a user's rights.
	Open func(ctx context.Context, c access.Caller, url string) (backing.Store, error)
	// OneUser is true if all stores are reached with the rights of this daemon's own user.
	OneUser bool
	Log     *slog.Logger
}

// Tracker has the daemons that have ended, and the places where a killed one may have left files. It
// is the backing.Peers of this daemon's stores. Its methods may be called concurrently.
type Tracker struct {
	o       Options
	ctx     context.Context        // of all that it does by itself
	earlier map[bb.InstanceID]bool // of this state folder, before this life; constant

	mu struct {
		lockorder.Mutex[lockrank.Leaf]
		swept map[sweptDir]bool
	}
}

// sweptDir is a directory that was looked at for a job.
type sweptDir struct{ job, root, dir string }

// New reads which instances this state folder has had, and adds the present one. Its lock keeps the
// folder to one life at a time.
func New(ctx context.Context, o Options) *Tracker {
	u := &Tracker{o: o, ctx: ctx, earlier: make(map[bb.InstanceID]bool)}
	u.mu.swept = make(map[sweptDir]bool)
	file := filepath.Join(o.StateDir, instancesFile)
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		o.Log.Warn("the instances of earlier starts cannot be read: their leftovers in stores stay", "err", err)
		return u
	}
	all := parseInstances(string(text))
	now := o.Instance
	for _, id := range all {
		if id != now {
			u.earlier[id] = true
		}
	}
	if slices.Contains(all, now) {
		return u
	}
	if err := appendLine(file, now.String()); err != nil {
		o.Log.Warn("this instance was not recorded: its leftovers in stores may stay", "err", err)
	}
	return u
}

// parseInstances reads one instance a line, the newest last. Other lines are ignored.
func parseInstances(text string) (all []bb.InstanceID) {
	for line := range strings.Lines(text) {
		if id, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64); err == nil && id != 0 {
			all = append(all, bb.InstanceID(id))
		}
	}
	return all[max(0, len(all)-maxInstances):]
}

func appendLine(file, line string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// Ended is that of backing.Peers.
func (u *Tracker) Ended(instance bb.InstanceID, _ uint64) bool {
	if u.earlier[instance] {
		return true
	}
	return u.o.Members != nil && goneFrom(u.o.Members(), instance)
}

// goneFrom reports whether an instance is a member's that is gone, and no living one's.
func goneFrom(members []gossip.Member, instance bb.InstanceID) bool {
	gone := false
	for i := range members {
		if m := &members[i]; m.Instance == instance && instance != 0 {
			if !m.State.Gone() {
				return false
			}
			gone = true
		}
	}
	return gone
}

// Life returns this process's own, as the names of its unfinished work hold it.
func (u *Tracker) Life() string {
	return bb.InstanceID(backing.NewOwner(u.o.Instance).Life).String()
}

// Earlier returns the instances that this state folder had before.
func (u *Tracker) Earlier() (all []string) {
	for id := range u.earlier {
		all = append(all, id.String())
	}
	slices.Sort(all)
	return all
}

// note is a line of a note: a directory that a stage-out writes to.
type note struct {
	Root string    `json:"root"` // a backing URL
	Dir  string    `json:"dir"`
	For  *noteUser `json:"for,omitempty"` // nil in a note of an older release
}

// noteUser is the requester of a stage-out.
type noteUser struct {
	UID    uint32   `json:"uid"`
	GIDs   []uint32 `json:"gids"`
	System bool     `json:"system,omitempty"`
}

// cred returns the rights with which the note's store is opened, or those of user nobody if the
// note has none.
func (n *note) cred() access.Caller {
	if n.For == nil || len(n.For.GIDs) == 0 {
		return access.Caller{UID: nobody, GIDs: []uint32{nobody}}
	}
	return access.Caller{UID: n.For.UID, GIDs: n.For.GIDs, System: n.For.System}
}

// nobody is the user and group that own nothing.
const nobody = 65534

// sweptStore is the store of a stage-out. Before the first file of a directory is read, the
// directory is noted, and remains of an earlier attempt in it are removed.
type sweptStore struct {
	backing.Store
	u    *Tracker
	by   noteUser
	root string
	flat bool
	job  string // "": each stage-out checks by itself
	log  *os.File

	mu   sync.Mutex
	dirs map[string]*sync.Once
}

// Sweeping wraps a stage-out's store. In each directory that it writes to, remains of an earlier
// attempt are removed first, once for each directory of a job. Without a job (""), it is once for
// each such store.
func (u *Tracker) Sweeping(s backing.Store, c access.Caller, root, job string) backing.Store {
	where, _ := bb.ParseBacking(root)
	w := &sweptStore{Store: s, u: u, by: noteUser{c.UID, c.GIDs, c.System}, root: root, flat: where.IsFlat(), job: job, dirs: make(map[string]*sync.Once)}
	dir := filepath.Join(u.o.StateDir, notesDir)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		w.log, err = os.CreateTemp(dir, "stage-out-*")
	}
	if err != nil { // the copy matters more than the leftovers of a possible crash
		u.o.Log.Warn("the target of a stage-out was not recorded: leftovers of a crash may stay there", "url", root, "err", err)
	}
	return w
}

// Stat comes before each Put, and alone where the object is there already.
func (w *sweptStore) Stat(ctx context.Context, name string) (backing.Object, error) {
	dir := path.Dir(name)
	if dir == "." || w.flat {
		dir = ""
	}
	w.mu.Lock()
	once := w.dirs[dir]
	if once == nil {
		once = new(sync.Once)
		w.dirs[dir] = once
	}
	w.mu.Unlock()
	once.Do(func() { w.enter(ctx, dir) })
	return w.Store.Stat(ctx, name)
}

// enter notes a directory and sweeps it. A failure here does not fail the copy.
func (w *sweptStore) enter(ctx context.Context, dir string) {
	if w.log != nil {
		line, err := json.Marshal(note{w.root, dir, &w.by})
		if err == nil {
			_, err = w.log.Write(append(line, '\n'))
		}
		if err != nil {
			w.u.o.Log.Warn("the target of a stage-out was not recorded: leftovers of a crash may stay there", "url", w.root, "err", err)
		}
	}
	if w.job != "" && !w.u.first(sweptDir{w.job, w.root, dir}) {
		return
	}
	found, err := w.Store.Leftovers(ctx, backing.Within{Dir: dir, Remove: true})
	w.u.report(w.root, found, err)
}

// Close also removes the note, since unfinished work from here on has no owner.
func (w *sweptStore) Close() error {
	err := w.Store.Close()
	if w.log != nil {
		err = errors.Join(err, w.log.Close(), os.Remove(w.log.Name()))
	}
	return err
}

// first reports whether a directory is checked for the first time for a job.
func (u *Tracker) first(s sweptDir) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mu.swept[s] {
		return false
	}
	if len(u.mu.swept) >= maxSwept {
		clear(u.mu.swept)
	}
	u.mu.swept[s] = true
	return true
}

// report logs the removed leftovers.
func (u *Tracker) report(where string, found []backing.Leftover, err error) {
	n, bytes := 0, int64(0)
	for i := range found {
		if found[i].Removed {
			n, bytes = n+1, bytes+found[i].Size
		}
	}
	if n > 0 {
		u.o.Log.Info("removed unfinished work of killed daemons", "url", where, "files", n, "bytes", bytes)
	}
	if err != nil && u.ctx.Err() == nil {
		u.o.Log.Warn("the search for unfinished work of killed daemons failed", "url", where, "err", err)
	}
}

// SweepNoted removes the leftovers of the last life's stage-outs. Notes of a store that cannot be
// read stay for the next start.
func (u *Tracker) SweepNoted(files []string) {
	for _, file := range files {
		if u.ctx.Err() != nil {
			return
		}
		if err := u.sweepNote(file); err != nil {
			u.o.Log.Warn("the search for unfinished stage-outs of the last start failed", "note", file, "err", err)
			continue
		}
		if err := os.Remove(file); err != nil {
			u.o.Log.Warn("removing a note", "note", file, "err", err)
		}
	}
}

// Noted lists the notes that there are now.
func (u *Tracker) Noted() []string {
	files, err := filepath.Glob(filepath.Join(u.o.StateDir, notesDir, "stage-out-*"))
	if err != nil { // only of a bad pattern
		return nil
	}
	return files
}

func (u *Tracker) sweepNote(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	var open backing.Store
	root := ""
	defer func() {
		if open != nil {
			open.Close()
		}
	}()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var n note
		if json.Unmarshal(lines.Bytes(), &n) != nil {
			continue // its last line, cut short; nothing was written there yet
		}
		if open == nil || n.Root != root {
			if open != nil {
				open.Close()
			}
			c := n.cred()
			if n.For == nil && u.o.OneUser {
				c = access.Daemon() // whose files are its own user's
			}
			if open, err = u.o.Open(u.ctx, c, n.Root); err != nil {
				return err
			}
			root = n.Root
		}
		found, err := open.Leftovers(u.ctx, backing.Within{Dir: n.Dir, Remove: true})
		if err != nil && bb.KindOf(err) != bb.NotFound {
			return fmt.Errorf("%s: %w", n.Root, err)
		}
		u.report(n.Root, found, nil)
	}
	return lines.Err()
}
