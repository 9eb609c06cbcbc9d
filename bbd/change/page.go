package change

import (
	"errors"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"forebay/internal/wire"
)

// removePage is a part of a tree's removal. After so many entries its client gets an answer and
// requests the next part. Nil is the whole tree. Its methods may be called concurrently.
type removePage struct {
	most        int64
	files, dirs atomic.Int64 // removed
}

// errPage ends the removal of a page. It is no failure.
var errPage = errors.New("the page is full")

// maxPage bounds the entries of a directory that are read at a time.
const maxPage = 2000

// room returns how many entries of a directory to read next, or 0 if the page is full.
func (p *removePage) room() int {
	if p == nil {
		return maxPage
	}
	return int(min(max(p.most-p.files.Load()-p.dirs.Load(), 0), maxPage))
}

// count counts a file or directory that was removed, and returns the error of its removal.
func (p *removePage) count(isDir bool, err error) error {
	switch {
	case p == nil || err != nil:
	case isDir:
		p.dirs.Add(1)
	default:
		p.files.Add(1)
	}
	return err
}

// answer is the reply to the request.
func (p *removePage) answer(err error) (proto.Message, error) {
	more := errors.Is(err, errPage)
	if err != nil && !more {
		return nil, err
	}
	return &wire.Removed{Files: p.files.Load(), Directories: p.dirs.Load(), More: more}, nil
}
