package txn

import (
	"bytes"

	"forebay/internal/bb"
	"forebay/meta/kv"
)

// Salvage reports whether a record that was read of a damaged namespace is to be stored again, and
// its new value. The records of transactions that are decided or over are, since these are carried
// on, and answer clients that repeat a commit. Of others a part of the output may be missing, and
// no commit was acknowledged.
//
// A transaction that is decided and not over is returned. If it was replacing, it folds. An
// unreadable record may have changed the entries found then, so they are not removed now. Its State
// is as it was.
func Salvage(key string, data []byte, revision uint64) (t *bb.Txn, again []byte, keep bool) {
	if key == decidedKey {
		return nil, bytes.Clone(data), true
	}
	was, err := openTxn(&kv.Record{Key: key, Data: data, Seq: revision})
	switch {
	case err != nil:
		return nil, nil, false
	case was.State.Over():
		return nil, bytes.Clone(data), true
	case !was.State.Decided():
		return nil, nil, false
	}
	is := was
	is.State = bb.TxnFolding
	again, err = sealTxn(&is)
	return &was, again, err == nil
}
