package bb

// LostDir is the directory of a buffer's root in which files appear that the namespace
// had forgotten and whose names have been taken since.
const LostDir = ".lost+found"
