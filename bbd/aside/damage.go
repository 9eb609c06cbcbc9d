package aside

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"forebay/internal/bb"
)

// DamageNotes are notes, in a folder, of damage to memory that a start has found and a later one does
// not find. They explain why files of a buffer that were open may be old or have holes. The buffer
// was set aside, so that no entry records it. They are of one daemon, which reads and writes one
// buffer's at a time.
type DamageNotes struct{ Dir string }

// file is that of a buffer, and of no later one of its name.
func (d DamageNotes) file(spec *bb.Buffer) string {
	return filepath.Join(d.Dir, spec.Name+"."+strconv.FormatInt(spec.Created.UnixNano(), 16))
}

// Note notes why, for good when it returns.
func (d DamageNotes) Note(spec *bb.Buffer, why string) (err error) {
	if err := os.MkdirAll(d.Dir, 0o700); err != nil {
		return bb.Wrap("note", d.Dir, err)
	}
	defer func() { err = bb.Wrap("note", d.file(spec), err) }()
	f, err := os.Create(d.file(spec))
	if err != nil {
		return err
	}
	_, err = f.WriteString(why)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	dir, err := os.Open(d.Dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Of returns the note of a buffer, or "" if there is none. A note that cannot be read is one, too.
func (d DamageNotes) Of(spec *bb.Buffer) string {
	why, err := os.ReadFile(d.file(spec))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ""
	case err != nil || len(why) == 0:
		return "a note of an earlier start cannot be read"
	}
	return string(why)
}

// Forget removes the note. Its content is in entries, or the buffer is gone.
func (d DamageNotes) Forget(spec *bb.Buffer) error {
	if err := os.Remove(d.file(spec)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return bb.Wrap("forget a note", d.file(spec), err)
	}
	return nil
}
