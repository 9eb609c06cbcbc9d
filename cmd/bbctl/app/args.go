package app

import (
	"fmt"
	"os"
	"strings"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"

	"github.com/dustin/go-humanize"
)

// ParseSize reads a size as people write it: 64GiB, 1.5TB, 100M, 4096.
func ParseSize(what, text string) (int64, error) {
	n, err := humanize.ParseBytes(text)
	if err != nil || n > 1<<62 || strings.HasPrefix(strings.TrimSpace(text), "-") {
		return 0, &client.Error{
			Kind: client.ErrInvalid, Op: what, Path: fmt.Sprintf("%q", text),
			Err: fmt.Errorf("invalid: not a size"), Remedy: "write 64GiB, 1.5TB, 100M or 4096",
		}
	}
	return int64(n), nil
}

// IsStdio reports whether an argument stands for standard input or output.
func IsStdio(arg string) bool { return arg == "-" }

// IsLocalDir reports whether a local path is a directory.
func IsLocalDir(p string) bool {
	info, err := os.Stat(p)
	return err == nil && info.IsDir()
}

// StoreURL is the URL of a store that is given as one, or as an absolute path.
func StoreURL(s string) string {
	if strings.HasPrefix(s, "/") {
		return bb.DirectoryURL(s)
	}
	return s
}

func NodeIDs(names []string) []admin.NodeID {
	var ids []admin.NodeID
	for _, n := range names {
		ids = append(ids, admin.NodeID(n))
	}
	return ids
}
