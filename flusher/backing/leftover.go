package backing

import "forebay/internal/bb"

// Leftover is unfinished work that lies in a store.
type Leftover struct {
	Name     string        `json:"name"`  // below the store's root
	Size     int64         `json:"bytes"` // of its written part, as far as the store reports it
	Instance bb.InstanceID `json:"-"`     // of the daemon that made it
	Ended    bool          `json:"ended"` // abandoned: that daemon is gone (see Owner.Ended)
	Removed  bool          `json:"removed"`
}

// InstanceOf returns the instance that made the work of a name.
func InstanceOf(name string) bb.InstanceID {
	instance, _, _ := parseTemp(name)
	return instance
}

// Within is the place of leftovers to find, and the treatment of them. Stores that keep
// unfinished work in one place search there, for any Dir and Deep.
type Within struct {
	Dir    string // below the root; "": the root
	Deep   bool   // in all that is below it, too
	Remove bool   // those of an ended daemon
}
