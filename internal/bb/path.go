package bb

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
)

// CheckBufferName refuses names that could not be a bucket's name, a directory's or a host's.
func CheckBufferName(name string) error {
	if name == "" || len(name) > MaxBufferName {
		return E(Invalid, "buffer name", name, fmt.Sprintf("must have 1 to %d characters", MaxBufferName))
	}
	for i, c := range []byte(name) {
		lower := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !lower && (i == 0 || c != '-' && c != '_') {
			return E(Invalid, "buffer name", name, "may hold only a-z, 0-9, - and _, and starts with a letter or digit")
		}
	}
	return nil
}

// CheckName refuses a text that cannot be one name in a directory.
func CheckName(name string) error {
	switch {
	case name == "":
		return E(Invalid, "name", name, "is empty")
	case name == "." || name == "..":
		return E(Invalid, "name", name, `"." and ".." are not names`)
	case len(name) > MaxName:
		return refuseLength("name", name[:32], "%d bytes", len(name), MaxName)
	case strings.ContainsAny(name, "/\x00"):
		return E(Invalid, "name", fmt.Sprintf("%q", name), "holds a slash or a NUL byte")
	case !utf8.ValidString(name):
		return E(Invalid, "name", fmt.Sprintf("%q", name), "is not UTF-8")
	}
	return nil
}

// tooLong is why a name or a path is refused that the system's calls refuse as ENAMETOOLONG.
type tooLong string

func (t tooLong) Error() string { return string(t) }

// Unwrap returns the number of the system, for a mount.
func (tooLong) Unwrap() error { return syscall.ENAMETOOLONG }

func refuseLength(op, begin, what string, has, most int) error {
	return &Error{Kind: Invalid, Op: op, Path: begin + "…", Err: tooLong(fmt.Sprintf("has "+what+", at most %d are allowed", has, most))}
}

// SplitPath checks a path within a buffer and returns its names from the root down. The root itself
// has none. Leading, trailing and doubled slashes and "." are allowed and ignored. ".." is refused,
// since a path must never name something outside the buffer.
func SplitPath(p string) ([]string, error) {
	if len(p) > MaxPath {
		return nil, refuseLength("path", p[:64], "%d bytes", len(p), MaxPath)
	}
	names := make([]string, 0, min(strings.Count(p, "/")+1, MaxDepth))
	for name := range strings.SplitSeq(p, "/") {
		if name == "" || name == "." {
			continue
		}
		if err := CheckName(name); err != nil {
			return nil, &Error{Kind: Invalid, Op: "path", Path: fmt.Sprintf("%q", p), Err: err}
		}
		names = append(names, name)
	}
	if len(names) > MaxDepth {
		return nil, refuseLength("path", p[:min(64, len(p))], "a depth of %d", len(names), MaxDepth)
	}
	return names, nil
}

// CheckPath returns a path in a buffer clean, as CleanPath does. The error of an operation on it
// names the wrong one of the two names.
func CheckPath(op, buffer, path string) (string, error) {
	if err := CheckBufferName(buffer); err != nil {
		return "", Wrap(op, buffer, err)
	}
	clean, err := CleanPath(path)
	if err != nil {
		return "", Wrap(op, path, err)
	}
	return clean, nil
}

// CleanPath checks a path and returns it without leading slash or doubled slashes. The root is "".
func CleanPath(p string) (string, error) {
	names, err := SplitPath(p)
	if err != nil {
		return "", err
	}
	length := len(names) - 1
	for _, name := range names {
		length += len(name)
	}
	if length == len(p) {
		return p, nil // most paths are clean, and need no copy
	}
	return strings.Join(names, "/"), nil
}

// Within reports whether a clean path is dir or lies in it. Everything lies in "" and in "/".
func Within(p, dir string) bool {
	dir = strings.TrimSuffix(dir, "/")
	return dir == "" || p == dir || len(p) > len(dir) && p[len(dir)] == '/' && p[:len(dir)] == dir
}

// Overlaps reports whether two clean paths are one, or one of them lies in the other.
func Overlaps(a, b string) bool { return Within(a, b) || Within(b, a) }

// Address is the parsed form of bb://BUFFER/path.
type Address struct {
	Buffer string
	Path   string // clean, without leading slash; "" is the root
}

// ParseAddress reads bb://BUFFER/path.
func ParseAddress(s string) (Address, error) {
	rest, ok := strings.CutPrefix(s, Scheme+"://")
	if !ok {
		return Address{}, E(Invalid, "address", fmt.Sprintf("%q", s), "does not begin with bb://").
			WithRemedy("write bb://BUFFER/path")
	}
	buffer, p, _ := strings.Cut(rest, "/")
	if err := CheckBufferName(buffer); err != nil {
		return Address{}, &Error{Kind: Invalid, Op: "address", Path: fmt.Sprintf("%q", s), Err: err}
	}
	clean, err := CleanPath(p)
	if err != nil {
		return Address{}, err
	}
	return Address{Buffer: buffer, Path: clean}, nil
}

// String returns bb://BUFFER/path.
func (a Address) String() string { return Scheme + "://" + a.Buffer + "/" + a.Path }

// Join returns the address of name below a.
func (a Address) Join(name string) Address {
	return Address{Buffer: a.Buffer, Path: path.Join(a.Path, name)}
}

// Printable returns a name as `ls -b` prints it, but for spaces, which stay. Characters that would
// end a line or move a terminal's cursor become C escapes, and a backslash is doubled.
func Printable(name string) string {
	var b strings.Builder
	for _, r := range name { // invalid UTF-8 is utf8.RuneError
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case unicode.IsGraphic(r) && r != utf8.RuneError:
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}
