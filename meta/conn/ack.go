package conn

import (
	"bytes"
	"encoding/json"
	"fmt"

	"forebay/internal/bb"
)

const (
	codeStreamNotFound    = 10059
	codeWrongSequence     = 10071
	codeWrongSequenceOfIt = 10164
)

// APIError is an error that the server answers with.
type APIError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

// Error describes it.
func (e *APIError) Error() string {
	return fmt.Sprintf("server error %d: %s", e.ErrCode, e.Description)
}

// ParseAck reads the sequence from the acknowledgement of a publish. If the message's condition was
// not met, it is ErrRevision or ErrInProcess.
func ParseAck(data []byte) (uint64, error) {
	if !bytes.Contains(data, []byte(`"error"`)) {
		// {"stream":"KV_x","seq":123} with more fields after a batch
		if _, rest, ok := bytes.Cut(data, []byte(`"seq":`)); ok {
			n := 0
			var seq uint64
			for n < len(rest) && n < 19 && rest[n] >= '0' && rest[n] <= '9' {
				seq = seq*10 + uint64(rest[n]-'0')
				n++
			}
			if n > 0 && seq > 0 {
				return seq, nil
			}
		}
	}
	var ack struct {
		Error *APIError `json:"error"`
	}
	if err := json.Unmarshal(data, &ack); err != nil || ack.Error == nil {
		return 0, bb.E(bb.Internal, "put", "", fmt.Sprintf("the server's acknowledgement is malformed: %.80q", data))
	}
	switch {
	case ack.Error.ErrCode == codeWrongSequence:
		return 0, ErrRevision
	case ack.Error.ErrCode == codeWrongSequenceOfIt:
		return 0, ErrInProcess
	case ack.Error.ErrCode == codeStreamNotFound:
		return 0, ErrNoStream
	case ack.Error.Code == 503:
		return 0, fmt.Errorf("%w: %w", ErrUncertain, ack.Error)
	}
	return 0, &bb.Error{Kind: bb.Internal, Op: "put", Err: ack.Error, Remedy: "see the NATS server's limits and log"}
}
