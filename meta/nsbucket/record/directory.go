package record

import (
	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/metapb"
)

// Directory is the reverse record of a directory.
type Directory struct {
	Parent   bb.DirID
	Name     string
	Removing bool
	Rest     string
}

// SealDir encodes a directory's record.
func SealDir(dir bb.DirID, d Directory) ([]byte, error) {
	return kv.Seal(DirKey(dir), kv.WithRest(&metapb.Directory{Parent: uint64(d.Parent), Name: d.Name, Removing: d.Removing}, d.Rest))
}

// OpenDir decodes a directory's record.
func OpenDir(key string, b []byte) (Directory, error) {
	var m metapb.Directory
	if err := kv.Open(key, b, &m); err != nil {
		return Directory{}, err
	}
	return Directory{Parent: bb.DirID(m.GetParent()), Name: m.GetName(), Removing: m.GetRemoving(), Rest: kv.Rest(&m)}, nil
}
