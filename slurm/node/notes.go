package node

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"forebay/internal/bb"
)

// The files of prologs in Config.Dir, which is root's:
//
//	JOB.json       of each job with a buffer: the job's run. Root's
//	JOB.run        of each job on the node: how often it had been started before. Root's
//	JOB.env        the variables for its tasks. The user's, 0600
//	JOB.opening    until its prolog has left them, or its epilog
//	JOB.token      admits the user's programs elsewhere to the buffer. The user's, 0600
//	KEY.left       a run that has left the node, and is not reported to a daemon yet
type note struct {
	Key    string    `json:"key"`
	Job    string    `json:"job"`
	Failed bool      `json:"failed,omitempty"`
	Since  time.Time `json:"since"`
	Dir    string    `json:"dir,omitempty"` // on which the run's buffer is mounted
}

const (
	noteSuffix    = ".json"
	runSuffix     = ".run"
	envSuffix     = ".env"
	tokenSuffix   = ".token"
	openingSuffix = ".opening"
	leftSuffix    = ".left"
)

// makeDir makes the folder, and refuses one in which others might have put something.
func (c *Config) makeDir() error {
	if err := os.MkdirAll(filepath.Dir(c.Dir), 0o755); err != nil {
		return bb.Wrap("prolog", c.Dir, err)
	}
	if err := os.Mkdir(c.Dir, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return bb.Wrap("prolog", c.Dir, err)
	}
	info, err := os.Lstat(c.Dir)
	switch {
	case err != nil:
		return bb.Wrap("prolog", c.Dir, err)
	case !info.IsDir() || !owned(info) || info.Mode().Perm()&0o022 != 0:
		return bb.E(bb.Permission, "prolog", c.Dir, "it is no folder that only this user may write").WithRemedy("remove it, or give another --dir")
	}
	return nil
}

// writeFile puts a file in its place, whole and with its owner from the beginning.
func writeFile(path string, content []byte, uid, gid int) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp*") // mode 0600
	if err != nil {
		return bb.Wrap("prolog", path, err)
	}
	defer os.Remove(f.Name()) // fails once it has its name
	_, err = f.Write(content)
	if err == nil && uid != os.Geteuid() {
		err = f.Chown(uid, gid)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	return bb.Wrap("prolog", path, err)
}

func writeNote(path string, n *note) error {
	text, err := json.Marshal(n)
	if err != nil {
		return bb.Wrap("prolog", path, err)
	}
	return writeFile(path, append(text, '\n'), os.Geteuid(), os.Getegid())
}

// readNote returns a note, or nil if there is none.
func readNote(path string) (*note, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	n := new(note)
	if err == nil {
		err = json.Unmarshal(text, n)
	}
	if err == nil {
		err = bb.CheckBufferName(n.Key) // it becomes a part of a path
	}
	return n, bb.Wrap("epilog", path, err)
}

// startedBefore returns how often a job had been started before the run that is on the node. It
// returns false if no prolog has recorded it.
func (c *Config) startedBefore(job string) (restarts int, ok bool) {
	text, err := os.ReadFile(c.file(job, runSuffix))
	if err == nil {
		restarts, err = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	return restarts, err == nil
}

// putAside writes a note of a run that has left, for a later report to a daemon.
func (c *Config) putAside(n *note) error {
	return writeNote(c.file(n.Key, leftSuffix), n)
}

// left returns the notes of runs that are not reported to a daemon yet, the oldest first.
func (c *Config) left() []*note {
	files, _ := filepath.Glob(filepath.Join(c.Dir, "*"+leftSuffix))
	var list []*note
	for _, file := range files {
		n, err := readNote(file)
		switch {
		case err != nil:
			c.Log("%v", err)
		case n != nil && strings.TrimSuffix(filepath.Base(file), leftSuffix) == n.Key:
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b *note) int { return a.Since.Compare(b.Since) })
	return list
}

// owned reports whether something is this user's.
func owned(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
