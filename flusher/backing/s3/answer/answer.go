// Package answer explains the answers of S3 and its imitators: the kind of an error, and whether a request that
// failed may still be carried out. It must never send a request, nor depend on an object.
package answer

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"

	"github.com/minio/minio-go/v7"

	"forebay/internal/bb"
)

// Wrap adds an operation and a name to err, and translates S3's codes to kinds.
func Wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	var known *bb.Error
	if errors.As(err, &known) {
		return bb.Wrap(op, name, err)
	}
	return &bb.Error{Kind: kindOf(err), Op: op, Path: name, Err: err}
}

func kindOf(err error) bb.Kind {
	var answer minio.ErrorResponse
	if errors.As(err, &answer) {
		return kindOfAnswer(answer)
	}
	var netErr net.Error
	var urlErr *url.Error
	switch {
	case errors.Is(err, context.Canceled):
		return bb.Cancelled
	case errors.As(err, &netErr), errors.As(err, &urlErr), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return bb.Unavailable
	default:
		return bb.KindOf(err)
	}
}

// kinds of the codes that S3 and its imitators answer with. Other codes are judged by status.
var kinds = map[string]bb.Kind{
	"NoSuchKey":                      bb.NotFound,
	"NoSuchBucket":                   bb.NotFound,
	"NoSuchUpload":                   bb.Unavailable, // aborted by another client, so a new upload may succeed
	"AccessDenied":                   bb.Permission,
	"InvalidAccessKeyId":             bb.Permission,
	"SignatureDoesNotMatch":          bb.Permission,
	"RequestTimeTooSkewed":           bb.Permission,
	"ExpiredToken":                   bb.Permission,
	"XAdminUserNotFound":             bb.Permission, // an access key without a user in versitygw
	"InvalidToken":                   bb.Permission,
	"BadDigest":                      bb.Checksum,
	"InvalidDigest":                  bb.Checksum,
	"XAmzContentChecksumMismatch":    bb.Checksum,
	"XAmzContentSHA256Mismatch":      bb.Checksum,
	"IncompleteBody":                 bb.Unavailable,
	"RequestTimeout":                 bb.Unavailable,
	"SlowDown":                       bb.Unavailable,
	"PreconditionFailed":             bb.Busy, // changed under our hands
	"ConditionalRequestConflict":     bb.Busy,
	"OperationAborted":               bb.Busy,
	"ObjectParentIsFile":             bb.NotDirectory, // of gateways onto file systems
	"ExistingObjectIsDirectory":      bb.IsDirectory,
	"QuotaExceeded":                  bb.NoSpace,
	"XMinioStorageFull":              bb.NoSpace,
	"XMinioAdminBucketQuotaExceeded": bb.NoSpace,
	"KeyTooLongError":                bb.Invalid,
	"EntityTooLarge":                 bb.Invalid,
	"NotImplemented":                 bb.Unsupported,
	"AuthorizationHeaderMalformed":   bb.Invalid,
	"PermanentRedirect":              bb.Invalid,
	"InvalidBucketName":              bb.Invalid,
	"InvalidRegion":                  bb.Invalid,
	"XMinioInvalidObjectName":        bb.Invalid,
	"XMinioObjectExistsAsDirectory":  bb.IsDirectory,
	"XMinioParentIsObject":           bb.NotDirectory,
	"InvalidArgument":                bb.Invalid,
	"MethodNotAllowed":               bb.Unsupported,
}

func kindOfAnswer(answer minio.ErrorResponse) bb.Kind {
	if kind, ok := kinds[answer.Code]; ok {
		return kind
	}
	switch status := answer.StatusCode; {
	case status == http.StatusNotFound:
		return bb.NotFound
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		return bb.Permission
	case status == http.StatusInsufficientStorage:
		return bb.NoSpace
	case status == http.StatusTooManyRequests, status >= 500:
		return bb.Unavailable
	case status >= 400:
		return bb.Invalid
	default:
		return bb.Internal
	}
}

// IsInvalidRange reports whether a read began at or beyond an object's end.
func IsInvalidRange(err error) bool {
	var answer minio.ErrorResponse
	return errors.As(err, &answer) && answer.StatusCode == http.StatusRequestedRangeNotSatisfiable
}

// IsNoBucket reports whether the bucket does not exist, which otherwise is like an object that does not.
func IsNoBucket(err error) bool {
	var answer minio.ErrorResponse
	return errors.As(err, &answer) && answer.Code == minio.NoSuchBucket
}

// ConditionFailed reports whether a PUT was refused because its condition does not hold, or
// because another one was on its way.
func ConditionFailed(err error) bool {
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) {
		return false
	}
	return answer.StatusCode == http.StatusPreconditionFailed || answer.Code == "ConditionalRequestConflict" || answer.Code == "PreconditionFailed"
}

// Outcome is the knowledge about a request after its error.
type Outcome uint8

// The outcomes.
const (
	Settled    Outcome = iota // it was answered, or never left, and so is not carried out any more
	Open                      // it may still be carried out
	OpenIfSent                // it may, if all of it has been handed to the network
)

// OutcomeOf decides whether a request that failed may still be carried out. nil is settled.
func OutcomeOf(err error) Outcome {
	var answer minio.ErrorResponse
	var op *net.OpError
	switch {
	case err == nil:
		return Settled
	case errors.As(err, &answer) && answer.StatusCode >= 500:
		return Open // of a gateway that has stopped waiting, perhaps
	case errors.As(err, &answer) && answer.StatusCode != 0, errors.As(err, &op) && op.Op == "dial":
		return Settled
	}
	return OpenIfSent
}

// LostError is the error of a request that may still be carried out.
type LostError struct{ Err error }

func (e *LostError) Error() string { return e.Err.Error() }

func (e *LostError) Unwrap() error { return e.Err }

// Reason returns the error without the operations and names around it, for a message that has its own.
func Reason(err error) error {
	for {
		switch e := err.(type) {
		case *bb.Error:
			if e.Err == nil {
				return e
			}
			err = e.Err
		case *LostError:
			err = e.Err
		case *url.Error:
			err = e.Err
		default:
			return err
		}
	}
}

// IsNoUpload reports whether an upload in parts is not there: completed, aborted, or never begun.
func IsNoUpload(err error) bool { return minio.ToErrorResponse(err).Code == minio.NoSuchUpload }
