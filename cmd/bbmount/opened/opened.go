// Package opened has files of the client whose opening can be interrupted. It must never depend on their content.
package opened

import (
	"context"

	"forebay/client"
)

// File is an open file of a buffer.
type File struct {
	*client.File
	end context.CancelFunc // of the file's context
}

// Open opens a file for as long as life. If ctx ends before it is open, that fails with client.ErrCancelled.
func Open(life, ctx context.Context, b *client.Buffer, path string, o client.OpenOptions) (*File, error) {
	life, end := context.WithCancel(life)
	stop := context.AfterFunc(ctx, end)
	file, err := b.OpenFile(life, path, o)
	if err == nil && !stop() {
		file.Abort()
		err = client.ErrCancelled
	}
	if err != nil {
		end()
		return nil, err
	}
	return &File{file, end}, nil
}

// Close commits and closes the file.
func (f *File) Close() error {
	defer f.end()
	return f.File.Close()
}

// Abort closes the file without a commit.
func (f *File) Abort() {
	defer f.end()
	f.File.Abort()
}
