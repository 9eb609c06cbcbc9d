package fi

// RawOp is the operation of Raw.Run.
type RawOp int

// The operations, as raw.h numbers them. RawWrite completes when the bytes are sent, RawDeliver
// when they are in the target's memory, as all of rdma's writes do.
const (
	RawWrite RawOp = iota
	RawDeliver
	RawRead
)

func (o RawOp) String() string { return [...]string{"write", "deliver", "read"}[o] }
