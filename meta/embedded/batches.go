package embedded

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

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
func (e *Server) BatchInMemory(stream string) error {
	cfg := e.s.JetStreamConfig()
	if e.batchDir == "" || cfg == nil {
		return nil
	}
	const op = "batches in memory"
	dir := filepath.Join(cfg.StoreDir, "$G", "streams", stream)
	link, to := filepath.Join(dir, "batches"), filepath.Join(e.batchDir, stream)
	e.linking.Lock()
	defer e.linking.Unlock()
	if at, err := os.Readlink(link); err == nil && at == to {
		return nil
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
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
