package bb

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
)

// Kind is one of a closed set of error kinds. Kinds cross the wire and every SDK by name. They are
// themselves errors, for errors.Is.
type Kind uint8

// The kinds. Their numbers are part of the protocol.
const (
	Internal Kind = iota + 1
	NotFound
	Exists
	NotDirectory
	IsDirectory
	NotEmpty
	Permission
	NoSpace
	Unavailable
	Lost
	Checksum
	Busy
	Invalid
	Unsupported
	Cancelled
)

var kindNames = [...]string{
	Internal:     "internal",
	NotFound:     "not found",
	Exists:       "exists",
	NotDirectory: "not a directory",
	IsDirectory:  "is a directory",
	NotEmpty:     "not empty",
	Permission:   "permission",
	NoSpace:      "no space",
	Unavailable:  "unavailable",
	Lost:         "lost",
	Checksum:     "checksum",
	Busy:         "busy",
	Invalid:      "invalid",
	Unsupported:  "unsupported",
	Cancelled:    "cancelled",
}

// String returns the kind's stable name.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return kindNames[Internal]
}

// Error makes a kind usable as the target of errors.Is.
func (k Kind) Error() string { return k.String() }

// Error is a failed operation (operation, path, node), its reason, and, where there is one, its remedy.
type Error struct {
	Kind   Kind
	Op     string // the operation in the user's words: "open", "stage-in", …
	Path   string // the bb:// address, file or value it was about
	Node   NodeID // where it failed, if not here
	Err    error  // why
	Remedy string // the step that mends it
	// Unknown: the failed change may have been carried out, or may be yet. See ErrUnknownOutcome.
	Unknown bool
}

// ErrUnknownOutcome marks, as a target of errors.Is, the unknown outcome of a change that failed.
// It may have been carried out, or may be yet. A change whose error does not match was not carried
// out, and never will be.
var ErrUnknownOutcome = errors.New("outcome unknown")

// MaybeDone returns err as the error of a change of which a part, or all, may have been
// carried out.
func MaybeDone(err error) error {
	if err == nil || errors.Is(err, ErrUnknownOutcome) {
		return err
	}
	var e *Error
	if !errors.As(err, &e) {
		return &Error{Kind: KindOf(err), Err: err, Unknown: true}
	}
	return &Error{Kind: e.Kind, Op: e.Op, Path: e.Path, Node: e.Node, Err: err, Unknown: true}
}

// E makes an Error of a kind with a reason.
func E(kind Kind, op, path, reason string) *Error {
	return &Error{Kind: kind, Op: op, Path: path, Err: errors.New(reason)}
}

// Wrap adds an operation and a path to err. It keeps err's kind, translates those of
// the standard library, and returns nil for nil.
func Wrap(op, path string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*Error); ok && e.Op == op && e.Path == path {
		return err
	}
	return &Error{Kind: KindOf(err), Op: op, Path: path, Err: err}
}

// WithRemedy returns a copy of e with a remedy.
func (e *Error) WithRemedy(remedy string) *Error {
	c := *e
	c.Remedy = remedy
	return &c
}

// Error returns one line: operation, path (Printable), node, reason and remedy. An inner
// Error does not repeat the outer one's facts.
func (e *Error) Error() string {
	var b strings.Builder
	part := func(s string) {
		if s == "" {
			return
		}
		if b.Len() > 0 {
			b.WriteString(": ")
		}
		b.WriteString(s)
	}
	part(e.Op)
	part(Printable(e.Path))
	reason, remedy := e.Why()
	if e.Node != "" && !strings.Contains(reason, "node "+string(e.Node)) {
		part("node " + string(e.Node))
	}
	if !strings.Contains(reason, e.Kind.String()) {
		part(e.Kind.String())
	}
	part(reason)
	if remedy != "" {
		b.WriteString(" (" + remedy + ")")
	}
	return b.String()
}

// Why returns the reason and the remedy, leaving out the operations and paths of
// inner errors about the same thing, and the operation of one that names another.
func (e *Error) Why() (reason, remedy string) {
	var named *fs.PathError
	inner, ok := e.Err.(*Error)
	switch {
	case e.Err == nil:
		return "", e.Remedy
	case !ok && errors.As(e.Err, &named) && e.Err == error(named) && same(named.Path, e.Path):
		return named.Err.Error(), e.Remedy
	case !ok:
		return e.Err.Error(), e.Remedy
	case !about(inner.Path, e.Path):
		other := *inner
		if other.Op == e.Op {
			other.Op = ""
		}
		return other.Error(), e.Remedy
	}
	reason, remedy = inner.Why()
	if reason == "" {
		reason = inner.Kind.String()
	}
	if e.Remedy != "" {
		remedy = e.Remedy
	}
	return reason, remedy
}

// about reports whether an inner path is the outer one, or a part of it.
func about(inner, outer string) bool {
	return inner == "" || same(inner, outer) || strings.HasPrefix(outer, strings.TrimSuffix(inner, "/")+"/") ||
		strings.TrimSuffix(outer, "/") == Scheme+"://"+inner
}

// same reports whether an inner path is the outer one, or the end of it. A buffer's name is its
// root. An address may be quoted.
func same(inner, outer string) bool {
	return inner == outer || strings.HasSuffix(outer, "/"+inner) || inner == strconv.Quote(outer) || inner == Scheme+"://"+outer+"/"
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Is matches the error's own kind and the standard library's equivalents, so that
// errors.Is(err, bb.NotFound) and errors.Is(err, fs.ErrNotExist) both work, and ErrUnknownOutcome.
func (e *Error) Is(target error) bool {
	if k, ok := target.(Kind); ok {
		return e.Kind == k
	}
	switch target {
	case ErrUnknownOutcome:
		return e.Unknown
	case fs.ErrNotExist:
		return e.Kind == NotFound
	case fs.ErrExist:
		return e.Kind == Exists
	case fs.ErrPermission:
		return e.Kind == Permission
	case fs.ErrInvalid:
		return e.Kind == Invalid
	case context.Canceled:
		return e.Kind == Cancelled
	case errors.ErrUnsupported:
		return e.Kind == Unsupported
	}
	return false
}

// KindOf returns the kind of the outermost Error in err's chain, else the kind that the standard library's errors stand
// for, else Internal. nil has kind 0.
func KindOf(err error) Kind {
	if err == nil {
		return 0
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	var k Kind
	if errors.As(err, &k) {
		return k
	}
	for _, m := range standard {
		if errors.Is(err, m.err) {
			return m.kind
		}
	}
	return Internal
}

var standard = []struct {
	err  error
	kind Kind
}{
	{context.Canceled, Cancelled},
	{context.DeadlineExceeded, Unavailable},
	{fs.ErrNotExist, NotFound},
	{fs.ErrPermission, Permission},
	{syscall.EROFS, Permission},
	{syscall.ENOTEMPTY, NotEmpty}, // before fs.ErrExist, which it also matches
	{fs.ErrExist, Exists},
	{syscall.ENOTDIR, NotDirectory},
	{syscall.EISDIR, IsDirectory},
	{syscall.ENOSPC, NoSpace},
	{syscall.EDQUOT, NoSpace},
	{fs.ErrInvalid, Invalid},
	{syscall.EINVAL, Invalid},
	{errors.ErrUnsupported, Unsupported},
}
