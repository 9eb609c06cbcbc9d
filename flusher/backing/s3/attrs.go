package s3

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"forebay/flusher/backing"
	"forebay/internal/xattr"
)

// A file's mode and time are kept as metadata of its object, under the names and in forms that both s3fs and rclone
// read. A symbolic link is an object whose mode is that of a link and whose bytes are its target. That is the form of
// s3fs (s3fs_symlink, s3fs_readlink). rclone recognizes links by their names alone (file.rclonelink), and has the target
// as a file. A name of its own would keep a link from replacing a file in one step.
//
//	x-amz-meta-mode   0100644                file type and permission bits; octal, since rclone
//	                                         takes it so, with the zero of s3fs's form
//	x-amz-meta-mtime  1600000000.123456789   seconds since 1970
//
// s3fs itself writes the mode as a decimal number (33188), rclone without the zero (100644). No
// number is a file's mode, or a directory's, in more than one of these forms.
const (
	keyMode = "Mode" // as minio-go returns them, without x-amz-meta-
	keyTime = "Mtime"
)

// The file types of POSIX that a mode begins with.
const (
	typeMask = 0o170000
	fileType = 0o100000
	dirType  = 0o040000
	linkType = 0o120000
)

// addMetadata adds a file's attributes to an object's metadata. Nil attributes are none.
func addMetadata(to map[string]string, attrs *backing.Attrs, kind uint64) {
	if attrs == nil {
		return
	}
	if attrs.IsLink() {
		kind = linkType
	}
	to[keyMode] = fmt.Sprintf("%07o", kind|uint64(attrs.Mode.Perm()))
	if when := attrs.MTime; !when.IsZero() && when.Unix() >= 0 {
		to[keyTime] = fmt.Sprintf("%d.%09d", when.Unix(), when.Nanosecond())
	}
	addXattrs(to, fitting(attrs))
}

// addXattrs adds extended attributes that fit to an object's metadata.
func addXattrs(to map[string]string, fit xattr.List) {
	for a := range fit.All() {
		to[strings.TrimPrefix(a.Name, xattr.Prefix)] = a.Value
	}
}

// parseXattrs reads the extended attributes in an object's metadata, also those that another program put there in this
// form.
func parseXattrs(metadata map[string]string) xattr.List {
	var all []xattr.Attr
	for name, value := range metadata {
		if name = strings.ToLower(name); isMetadataName(name) && isMetadataValue(value) {
			all = append(all, xattr.Attr{Name: xattr.Prefix + name, Value: value})
		}
	}
	return xattr.Fit(all...)
}

// maxXattrs bounds the names and values of extended attributes, since S3 has 2 KiB for all metadata
// of an object.
const maxXattrs = 1900

// fitting returns the extended attributes that fit an object's metadata: of a text without spaces
// around it, under a name of small letters, since S3 does not distinguish others, that no program
// has for something else. In this form rclone reads and writes them: x-amz-meta-NAME for user.NAME.
func fitting(attrs *backing.Attrs) xattr.List {
	if attrs == nil || attrs.IsLink() {
		return ""
	}
	var all []xattr.Attr
	room := maxXattrs
	for a := range attrs.Xattrs.All() {
		name := strings.TrimPrefix(a.Name, xattr.Prefix)
		size := len(name) + len(a.Value)
		if size > room || !isMetadataName(name) || !isMetadataValue(a.Value) {
			continue
		}
		room -= size
		all = append(all, a)
	}
	return xattr.Make(all...)
}

// takenNames are metadata of rclone, s3fs, s3cmd and this package.
var takenNames = []string{"mode", "mtime", "atime", "btime", "ctime", "uid", "gid", "rdev", "md5chksum", "xattr", "s3cmd-attrs", strings.ToLower(keyOurs)}

func isMetadataName(name string) bool {
	other := strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-")
	return name != "" && other == "" && name[0] != '-' && !strings.HasPrefix(name, "amz-") && !strings.HasPrefix(name, "x-amz-") &&
		!strings.HasPrefix(name, "forebay-") && !slices.Contains(takenNames, name)
}

func isMetadataValue(value string) bool {
	for i := range len(value) {
		if value[i] < ' ' || value[i] > '~' {
			return false
		}
	}
	return value != "" && strings.TrimSpace(value) == value && !strings.HasPrefix(value, "=?") // which stands for other text
}

// parseMode reads the mode of a file, or of a directory.
func parseMode(text string, kind uint64) (fs.FileMode, bool) {
	m, err := strconv.ParseUint(text, 8, 16)
	if err == nil && (m&typeMask == kind || m&typeMask == 0) {
		return fs.FileMode(m) & fs.ModePerm, true
	}
	m, err = strconv.ParseUint(text, 10, 16)
	return fs.FileMode(m) & fs.ModePerm, err == nil && m&typeMask == kind
}

// parseTime reads seconds with up to nine digits after the point.
func parseTime(text string) (time.Time, bool) {
	whole, part, _ := strings.Cut(text, ".")
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || seconds < 0 || seconds > maxSeconds {
		return time.Time{}, false
	}
	nanos, err := strconv.ParseUint((part + "000000000")[:9], 10, 32)
	if err != nil {
		return time.Time{}, false
	}
	return time.Unix(seconds, int64(nanos)), true
}

// maxSeconds is the largest time in nanoseconds since 1970, as entries keep times.
const maxSeconds = 1<<63/1_000_000_000 - 1
