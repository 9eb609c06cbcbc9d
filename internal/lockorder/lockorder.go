// Package lockorder checks, in builds with the tag lockorder, that goroutines lock mutexes in one
// order. Without the tag its Mutex is a sync.Mutex and costs nothing more. It must never depend on
// the state behind the mutexes. Places in the order and their names come from the packages that use
// it.
package lockorder

// Rank is implemented by an empty type for each place in a program's order of mutexes. A goroutine
// that holds a mutex takes another one only if that one's place is higher. Two of the same place are
// held together only if the type is Several. The zero value's method is called, concurrently.
type Rank interface {
	// Rank returns the place, and the name of the mutexes of that place.
	Rank() (place int, name string)
}

// Several is implemented by a Rank of which a goroutine holds several at a time. The order
// among those is not checked.
type Several interface{ Several() }
