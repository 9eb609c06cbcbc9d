// Package lockrank has the places of a daemon's mutexes in the order in which they are taken, which
// the comment of bbd.Daemon explains and builds with the tag lockorder check. It must never depend
// on the state that the mutexes guard.
package lockrank

// The places, the first to be taken first.
const (
	placeOpenFile = iota
	placeDirectories
	placeRestores
	placeSource
	placeOwner
	placeObject
	placeAllocator
	placeBackings
	placeBuffers
	placeOpenFiles
	placeDirtyFiles
	placeReaders
	placeCopies
	placeSegmentWriters
	placeRemoteSegments
	placeSegmentWriter
	placeRemoteSegment
	placeLeaf // of those under which no other is taken
)

type (
	Directories    struct{} // a directory is renamed for a transaction
	OpenFile       struct{} // one generation's commits
	Restores       struct{} // files that come back from the store, one at a time
	Source         struct{} // the bytes that a flush reads past memory
	Owner          struct{} // a generation's handles at the nodes that have it
	Object         struct{} // one reader's object on the store
	Allocator      struct{} // writers that wait for a segment
	Backings       struct{} // backing stores of all buffers
	Buffers        struct{} // buffers by name
	OpenFiles      struct{} // the open files of a buffer
	DirtyFiles     struct{} // the dirty files of a buffer
	Readers        struct{} // the readers of a buffer
	Copies         struct{} // a buffer's copies of other nodes' files
	SegmentWriters struct{} // writers of segments that the daemon fills, by user
	RemoteSegments struct{} // segments in other daemons' memory, by session
	SegmentWriter  struct{} // one writer of segments
	RemoteSegment  struct{} // one segment in another daemon's memory
	Leaf           struct{} // a mutex under which no other is taken
)

// Rank returns the place in the order, and the name of the mutexes of that place.
func (Directories) Rank() (int, string)    { return placeDirectories, "change.Buffer.directories" }
func (OpenFile) Rank() (int, string)       { return placeOpenFile, "file.File.mu" }
func (Restores) Rank() (int, string)       { return placeRestores, "readcache.Cache.restores" }
func (Source) Rank() (int, string)         { return placeSource, "readcache.Source.mu" }
func (Owner) Rank() (int, string)          { return placeOwner, "origin.Owner.mu" }
func (Object) Rank() (int, string)         { return placeObject, "origin.Object.mu" }
func (Allocator) Rank() (int, string)      { return placeAllocator, "Allocator.mu" }
func (Backings) Rank() (int, string)       { return placeBackings, "Pool.mu of backing stores" }
func (Buffers) Rank() (int, string)        { return placeBuffers, "registry.Table.mu" }
func (OpenFiles) Rank() (int, string)      { return placeOpenFiles, "file.Files.mu" }
func (DirtyFiles) Rank() (int, string)     { return placeDirtyFiles, "dirty.Files.mu" }
func (Readers) Rank() (int, string)        { return placeReaders, "readcache.readers.mu" }
func (Copies) Rank() (int, string)         { return placeCopies, "readcache.copies.mu" }
func (SegmentWriters) Rank() (int, string) { return placeSegmentWriters, "segmentWriters.mu" }
func (RemoteSegments) Rank() (int, string) { return placeRemoteSegments, "remoteSegments.mu" }
func (SegmentWriter) Rank() (int, string)  { return placeSegmentWriter, "segmentWriter.mu" }
func (RemoteSegment) Rank() (int, string)  { return placeRemoteSegment, "remoteSegment.mu" }
func (Leaf) Rank() (int, string)           { return placeLeaf, "a mutex without others under it" }

// Several is of lockorder, since a rename locks the files at two places, in the order of those.
func (OpenFile) Several() {}
