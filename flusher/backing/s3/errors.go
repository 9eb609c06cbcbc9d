package s3

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

// wrap gives err an operation and a name, and translates S3's codes to kinds.
func wrap(op, name string, err error) error {
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
	"NoSuchUpload":                   bb.Unavailable, // aborted by somebody: a new upload may succeed
	"AccessDenied":                   bb.Permission,
	"InvalidAccessKeyId":             bb.Permission,
	"SignatureDoesNotMatch":          bb.Permission,
	"RequestTimeTooSkewed":           bb.Permission,
	"ExpiredToken":                   bb.Permission,
	"XAdminUserNotFound":             bb.Permission, // an access key that versitygw does not know
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

func isInvalidRange(err error) bool {
	var answer minio.ErrorResponse
	return errors.As(err, &answer) && answer.StatusCode == http.StatusRequestedRangeNotSatisfiable
}

func isNoBucket(err error) bool {
	var answer minio.ErrorResponse
	return errors.As(err, &answer) && answer.Code == minio.NoSuchBucket
}
