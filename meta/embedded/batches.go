package embedded

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// BatchInMemory has the batches of a stream of this server pass through BatchDir; it does
// nothing where there is none, or where the server does not hold the stream. It is called
// when a stream has been made, and again after each start of the server: by then what was
// begun before is finished.
//
// The server keeps the messages of a batch in a store of its own until it has all of them,
// in a folder of the stream's, and syncs it before it carries the batch out. So that folder
// is made a link to one in memory:
//
//	DIR/jetstream/$G/streams/STREAM/batches ─▶ BatchDir/STREAM
//
// At its start the server looks there for a batch that it had half carried out, and then
// removes the link.
//
// bb.NoSpace: BatchDir is all but full, as other users' files may make it.
func (e *Server) BatchInMemory(stream string) error {
	link, to := e.batchesOf(stream)
	if link == "" {
		return nil
	}
	const op = "batches in memory"
	e.linking.Lock()
	defer e.linking.Unlock()
	if at, err := os.Readlink(link); err == nil && at == to {
		return nil
	}
	if _, err := os.Stat(filepath.Dir(link)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var room unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(e.batchDir), &room); err == nil && room.Blocks != 0 && room.Bavail*uint64(room.Bsize) < batchRoom {
		return bb.E(bb.NoSpace, op, e.batchDir, "there is no room for a batch")
	}
	// Nothing writes there while there is no link: what is in it is of a server that died,
	// and was not carried out.
	if err := errors.Join(os.RemoveAll(to), os.MkdirAll(to, 0o700)); err != nil {
		return bb.Wrap(op, to, err)
	}
	// A folder that a batch is in at this moment is not empty, and stays until the next call.
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return bb.Wrap(op, link, err)
	}
	return bb.Wrap(op, link, os.Symlink(to, link))
}

// batchRoom is more than a batch has: a thousand records.
const batchRoom = 2 << 20

// batchesOf returns where the server keeps the batches of a stream, and the folder in memory that is
// linked there; "" where there is none.
func (e *Server) batchesOf(stream string) (link, to string) {
	cfg := e.s.JetStreamConfig()
	if e.batchDir == "" || cfg == nil {
		return "", ""
	}
	return filepath.Join(cfg.StoreDir, "$G", "streams", stream, "batches"), filepath.Join(e.batchDir, stream)
}

// BatchOnDisk ends what BatchInMemory began. No batch of the stream is under way: one that was half
// carried out would be finished at the server's next start from where it is. bb.NotFound: the server does
// not hold the stream.
func (e *Server) BatchOnDisk(stream string) error {
	link, to := e.batchesOf(stream)
	if link == "" {
		return nil
	}
	e.linking.Lock()
	defer e.linking.Unlock()
	if _, err := os.Stat(filepath.Dir(link)); errors.Is(err, fs.ErrNotExist) {
		return bb.Wrap("batches on disk", link, err)
	}
	if at, err := os.Readlink(link); err != nil || at != to {
		return nil // it is there already
	}
	if err := os.Remove(link); err != nil {
		return bb.Wrap("batches on disk", link, err)
	}
	return bb.Wrap("batches on disk", to, os.RemoveAll(to))
}

// removeEmptyBatches leaves nothing in memory when no batch is under way.
func (e *Server) removeEmptyBatches() {
	if e.batchDir == "" {
		return
	}
	found, _ := os.ReadDir(e.batchDir)
	for _, d := range found {
		_ = os.Remove(filepath.Join(e.batchDir, d.Name()))
	}
	_ = os.Remove(e.batchDir)
}
