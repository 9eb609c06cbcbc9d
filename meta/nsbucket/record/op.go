package record

import (
	"cmp"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/metapb"
	"forebay/meta/namespace"
)

// SealOp encodes an operation as the record of a key.
func SealOp(key string, op *namespace.StoreOp) ([]byte, error) {
	format := byte(kv.FormatFirst)
	if op.Seq != 0 {
		format = kv.FormatSecond
	}
	return kv.SealAs(format, key, kv.WithRest(&metapb.StoreOp{
		Op: uint32(op.Op), OldPath: op.OldPath, NewPath: op.NewPath, File: uint64(op.File), IsDir: op.IsDir,
		Flushed: flushedRecord(op.Flushed), Replaced: flushedRecord(op.Replaced), By: string(op.By), Seq: op.Seq,
		Left: flushedRecord(op.Left), Attempts: contentRecords(op.Attempts), ReplacedAttempts: contentRecords(op.ReplacedAttempts),
	}, op.Rest))
}

// OpenOp decodes the record of an operation. seq is its revision.
func OpenOp(key string, b []byte, seq uint64) (namespace.StoreOp, error) {
	var m metapb.StoreOp
	if err := kv.Open(key, b, &m); err != nil {
		return namespace.StoreOp{}, err
	}
	return namespace.StoreOp{
		Seq: cmp.Or(m.GetSeq(), seq), Revision: seq, Op: namespace.Op(m.GetOp()), OldPath: m.GetOldPath(), NewPath: m.GetNewPath(),
		File: bb.FileID(m.GetFile()), IsDir: m.GetIsDir(), Flushed: fromFlushed(m.GetFlushed()),
		Replaced: fromFlushed(m.GetReplaced()), Left: fromFlushed(m.GetLeft()), By: bb.NodeID(m.GetBy()),
		Attempts: fromContents(m.GetAttempts()), ReplacedAttempts: fromContents(m.GetReplacedAttempts()),
		Rest: kv.Rest(&m),
	}, nil
}
