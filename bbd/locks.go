package bbd

// The places of the mutexes in their order, which Daemon's comment explains; builds with the tag
// lockorder check it.
const (
	placeOpenFile = iota
	placeDirectories
	placeRestores
	placeSource
	placeFileCopy
	placeTap
	placeRoom
	placeStores
	placeBuffers
	placeOpenFiles
	placeDirtyFiles
	placeReaders
	placeCopies
	placeSegmentWriters
	placeRemoteSpaces
	placeSegmentWriter
	placeRemoteSpace
	placeLeaf // of those under which no other is taken
)

type (
	rankDirectories    struct{}
	rankOpenFile       struct{}
	rankRestores       struct{}
	rankSource         struct{}
	rankFileCopy       struct{}
	rankTap            struct{}
	rankRoom           struct{}
	rankStores         struct{}
	rankBuffers        struct{}
	rankOpenFiles      struct{}
	rankDirtyFiles     struct{}
	rankReaders        struct{}
	rankCopies         struct{}
	rankSegmentWriters struct{}
	rankRemoteSpaces   struct{}
	rankSegmentWriter  struct{}
	rankRemoteSpace    struct{}
	rankLeaf           struct{}
)

func (rankDirectories) Rank() (int, string)    { return placeDirectories, "folds.directories" }
func (rankOpenFile) Rank() (int, string)       { return placeOpenFile, "openFile.mu" }
func (rankRestores) Rank() (int, string)       { return placeRestores, "readers.restores" }
func (rankSource) Rank() (int, string)         { return placeSource, "snapshotSource.mu" }
func (rankFileCopy) Rank() (int, string)       { return placeFileCopy, "fileCopy.mu" }
func (rankTap) Rank() (int, string)            { return placeTap, "tap.mu" }
func (rankRoom) Rank() (int, string)           { return placeRoom, "room.mu" }
func (rankStores) Rank() (int, string)         { return placeStores, "stores.mu" }
func (rankBuffers) Rank() (int, string)        { return placeBuffers, "Daemon.buffers" }
func (rankOpenFiles) Rank() (int, string)      { return placeOpenFiles, "openFiles.mu" }
func (rankDirtyFiles) Rank() (int, string)     { return placeDirtyFiles, "dirtyFiles.mu" }
func (rankReaders) Rank() (int, string)        { return placeReaders, "readers.mu" }
func (rankCopies) Rank() (int, string)         { return placeCopies, "copies.mu" }
func (rankSegmentWriters) Rank() (int, string) { return placeSegmentWriters, "segmentWriters.mu" }
func (rankRemoteSpaces) Rank() (int, string)   { return placeRemoteSpaces, "remoteSpaces.mu" }
func (rankSegmentWriter) Rank() (int, string)  { return placeSegmentWriter, "segmentWriter.mu" }
func (rankRemoteSpace) Rank() (int, string)    { return placeRemoteSpace, "remoteSpace.mu" }
func (rankLeaf) Rank() (int, string)           { return placeLeaf, "a mutex without others under it" }

// Several: a rename locks the files at two places, in the order of those.
func (rankOpenFile) Several() {}
