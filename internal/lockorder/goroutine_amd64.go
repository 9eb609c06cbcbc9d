//go:build lockorder

package lockorder

import "sync"

// goroutineID returns the address of the runtime's record of this goroutine, which stays where it is.
// A goroutine that begins may get the record of one that has ended, with no mutex held.
func goroutineID() uintptr

// goroutines are lists of the held of all goroutines that have ever locked something, by a hash of
// their number. A goroutine adds its own, and finds it without a lock or an atomic operation. Either
// would order this goroutine's steps and others', and so hide their races from the detector. On
// amd64, the first store becomes visible first.
var goroutines struct {
	sync.Mutex // orders those that add
	lists      [1 << 12]*node
}

type node struct {
	held held
	next *node
}

//go:norace
func ofGoroutine() *held {
	id := goroutineID()
	list := &goroutines.lists[id>>6*0x9e3779b97f4a7c15>>52]
	for n := *list; n != nil; n = n.next {
		if n.held.id == id {
			return &n.held
		}
	}
	n := &node{held: held{id: id}}
	goroutines.Lock()
	defer goroutines.Unlock()
	n.next = *list
	*list = n
	return &n.held
}

func (h *held) keep() {}

func (h *held) drop() {}
