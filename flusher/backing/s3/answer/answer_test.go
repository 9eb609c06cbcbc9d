package answer

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"

	"github.com/minio/minio-go/v7"
)

func TestOutcomeOf(t *testing.T) {
	of := func(status int) error { return minio.ErrorResponse{StatusCode: status} }
	for _, x := range []struct {
		err  error
		want Outcome
	}{
		{nil, Settled},
		{errors.New("connection reset"), OpenIfSent},
		{context.Canceled, OpenIfSent},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, Settled},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, OpenIfSent},
		{of(http.StatusPreconditionFailed), Settled},
		{of(http.StatusForbidden), Settled},
		{of(http.StatusServiceUnavailable), Open},
		{of(http.StatusGatewayTimeout), Open},
	} {
		if got := OutcomeOf(x.err); got != x.want {
			t.Errorf("%v: %v, want %v", x.err, got, x.want)
		}
	}
}
