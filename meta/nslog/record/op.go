package record

import (
	"google.golang.org/protobuf/encoding/protowire"

	"forebay/internal/bb"
	"forebay/meta/namespace"
)

// OpValue encodes an operation. The bytes are those of the message StoreOp of metapb.
func OpValue(op *namespace.StoreOp) []byte {
	b := number(nil, 1, uint64(op.Op))
	b = text(b, 2, op.OldPath)
	b = text(b, 3, op.NewPath)
	b = number(b, 4, uint64(op.File))
	b = number(b, 5, protowire.EncodeBool(op.IsDir))
	b = appendStored(b, 6, &op.Flushed)
	b = appendStored(b, 7, &op.Replaced)
	b = text(b, 8, string(op.By))
	b = number(b, 9, op.Seq)
	b = appendStored(b, 10, &op.Left)
	b = appendContents(b, 11, op.Attempts)
	b = appendContents(b, 12, op.ReplacedAttempts)
	return append(b, op.Rest...)
}

func appendStored(b []byte, field protowire.Number, f *bb.Flushed) []byte {
	if *f == (bb.Flushed{}) {
		return b
	}
	return within(b, field, func(b []byte) []byte { return appendFlushed(b, f) })
}

// OpenOp decodes the value of an operation of a revision.
func OpenOp(value []byte, revision uint64) (*namespace.StoreOp, error) {
	op := &namespace.StoreOp{Revision: revision}
	if err := fields(value, &op.Rest, func(f field) error { return setOpField(op, f) }); err != nil {
		return nil, garbage("an operation", err.Error())
	}
	return op, nil
}

func setOpField(op *namespace.StoreOp, f field) error {
	switch f.tag {
	case 1<<3 | varintField:
		op.Op = namespace.Op(f.number())
	case 2<<3 | bytesField:
		op.OldPath = string(f.bytes())
	case 3<<3 | bytesField:
		op.NewPath = string(f.bytes())
	case 4<<3 | varintField:
		op.File = bb.FileID(f.number())
	case 5<<3 | varintField:
		op.IsDir = f.number() != 0
	case 6<<3 | bytesField:
		return openFlushed(f.bytes(), &op.Flushed)
	case 7<<3 | bytesField:
		return openFlushed(f.bytes(), &op.Replaced)
	case 8<<3 | bytesField:
		op.By = bb.NodeID(f.bytes())
	case 9<<3 | varintField:
		op.Seq = f.number()
	case 10<<3 | bytesField:
		return openFlushed(f.bytes(), &op.Left)
	case 11<<3 | bytesField:
		c, err := openContent(f.bytes())
		op.Attempts = append(op.Attempts, c)
		return err
	case 12<<3 | bytesField:
		c, err := openContent(f.bytes())
		op.ReplacedAttempts = append(op.ReplacedAttempts, c)
		return err
	default:
		return errUnknown
	}
	return nil
}
