package record

import "encoding/binary"

// Outcome is the answer to a client's change: entries, by their keys and values at
// that time.
type Outcome []Effect

// Value encodes an outcome: count | key length | key | revision | value length | value …
func (o Outcome) Value() []byte {
	b := binary.AppendUvarint(nil, uint64(len(o)))
	for _, e := range o {
		b = append(binary.AppendUvarint(b, uint64(len(e.Key))), e.Key...)
		b = binary.AppendUvarint(b, e.Revision)
		b = append(binary.AppendUvarint(b, uint64(len(e.Value))), e.Value...)
	}
	return b
}

// OpenOutcome decodes an outcome. It shares memory with value.
func OpenOutcome(value []byte) (o Outcome, err error) {
	r := reader{b: value}
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		e := Effect{Key: r.bytes(r.uvarint())}
		e.Revision = r.uvarint()
		e.Value = r.bytes(r.uvarint())
		o = append(o, e)
	}
	if r.bad || len(r.b) > 0 {
		return nil, garbage("an outcome", "it is malformed")
	}
	return o, nil
}

// FloorValue is the value under a session's number 0. Outcomes below floor were dropped.
func FloorValue(floor uint64) []byte { return binary.AppendUvarint(nil, floor) }

// OpenFloor decodes it.
func OpenFloor(value []byte) (uint64, error) {
	r := reader{b: value}
	floor := r.uvarint()
	if r.bad || len(r.b) > 0 {
		return 0, garbage("a session's floor", "it is malformed")
	}
	return floor, nil
}
