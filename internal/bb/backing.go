package bb

import (
	"fmt"
	"net/url"
	"path"
	"strings"
)

// backingKind is the properties of a kind of stores, apart from the way to open one.
type backingKind struct {
	scheme    string
	directory bool // a directory of the nodes; otherwise a service, with buckets
	flat      bool
	access    BackingAccess
}

// backingKinds are the kinds of stores. Package flusher/backing/open opens them. Nothing else
// compares schemes.
var backingKinds = []backingKind{
	{scheme: "file", directory: true, access: AccessAsUser},
	{scheme: "s3", flat: true, access: AccessByRules},
}

// backingKindOf returns the row of a scheme. An unknown one has none of the properties, and
// is for root alone.
func backingKindOf(scheme string) (backingKind, bool) {
	for _, k := range backingKinds {
		if k.scheme == scheme {
			return k, true
		}
	}
	return backingKind{}, false
}

// BackingAccess is the way in which it is decided whether a user may have a daemon use a store.
type BackingAccess uint8

// The ways. The zero value is that of a kind for which nothing else is written down.
const (
	AccessRootOnly BackingAccess = iota // root and the daemon's user may use it, others may not
	AccessAsUser                        // the store is reached with the user's rights, and the kernel decides
	AccessByRules                       // the daemon reaches it; the administrator's rules decide (bbd/storerules)
)

// Backing is the parsed form of a backing URL.
type Backing struct {
	Scheme string     // "file" or "s3"
	Path   string     // of a directory: absolute and clean
	Bucket string     // of a service
	Prefix string     // of a service: without leading or trailing slash; may be empty
	Query  url.Values // of a service
	Layout string     // of a directory; of files of at least 1 MiB there, if that is Lustre; "": the daemon's choice

	query string // Query as it was written, with its question mark
}

// ParseBacking reads file:///path?layout=… or s3://bucket/prefix?endpoint=…&region=….
func ParseBacking(s string) (Backing, error) {
	invalid := func(reason string) (Backing, error) {
		return Backing{}, E(Invalid, "backing", fmt.Sprintf("%q", s), reason).
			WithRemedy("write file:///path or s3://bucket/prefix")
	}
	u, err := url.Parse(s)
	if err != nil {
		return invalid("is not a URL")
	}
	if u.User != nil || u.Fragment != "" {
		return invalid("must hold neither credentials nor a fragment")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return invalid("has a malformed query")
	}
	kind, known := backingKindOf(u.Scheme)
	if !known {
		return invalid("has an unknown scheme")
	}
	if kind.directory {
		if u.Host != "" || !strings.HasPrefix(u.Path, "/") || path.Clean(u.Path) == "/" {
			return invalid("needs an absolute path below the root directory and no host")
		}
		layout := query.Get("layout")
		if strings.ContainsRune(u.Path, 0) || len(query) > 1 || len(query) == 1 && (len(query["layout"]) != 1 || layout == "") {
			return invalid("has a NUL byte, or another query than ?layout=…")
		}
		return Backing{Scheme: u.Scheme, Path: path.Clean(u.Path), Layout: layout}, nil
	}
	prefix, err := CleanPath(u.Path)
	if err != nil {
		return Backing{}, err
	}
	if u.Host == "" || u.Port() != "" {
		return invalid("names no bucket")
	}
	b := Backing{Scheme: u.Scheme, Bucket: u.Host, Prefix: prefix, Query: query}
	if i := strings.IndexByte(s, '?'); i >= 0 {
		b.query = s[i:]
	}
	return b, nil
}

// IsDirectory reports whether the store is the directory Path of the nodes. Otherwise it is a service.
func (b Backing) IsDirectory() bool { k, _ := backingKindOf(b.Scheme); return k.directory }

// IsFlat reports whether the store keeps unfinished work of all names in one place, not in directories.
func (b Backing) IsFlat() bool { k, _ := backingKindOf(b.Scheme); return k.flat }

// Access returns the way in which it is decided whether a user may use the store.
func (b Backing) Access() BackingAccess { k, _ := backingKindOf(b.Scheme); return k.access }

// Param returns a parameter of the URL of a service, or "" if there is none. Of several it returns
// the last, as adaptors do.
func (b Backing) Param(key string) string {
	if all := b.Query[key]; len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}

// Endpoint returns the endpoint that the URL of a service names. "" means the site's, or none.
func (b Backing) Endpoint() string { return b.Param("endpoint") }

// server returns a text that is the same for two endpoints of one server, however they are written. The default
// port of a scheme is left out, host names are in lower case, and the path of the whole server may end with a
// slash. A text that is no URL of a host is itself.
func (b Backing) server() string {
	endpoint := b.Endpoint()
	u, err := url.Parse(endpoint)
	if err != nil || u.Hostname() == "" {
		return endpoint
	}
	host, port := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + "[" + host + "]:" + port + strings.TrimRight(u.Path, "/")
}

// Overlaps reports whether two backings are one place, or one of them lies below the other. Of stores of
// objects the bucket and the server of the endpoint count. One without an endpoint is like any other.
func (b Backing) Overlaps(o Backing) bool {
	one, other := b.server(), o.server()
	return b.Scheme == o.Scheme && b.Bucket == o.Bucket && (one == other || one == "" || other == "") &&
		Overlaps(b.Path+b.Prefix, o.Path+o.Prefix)
}

// Split returns the URL of the directory or prefix above the last name, and that name, which may be a
// file's or a directory's. A directory that lies right below "/" is not split, and its name is "".
func (b Backing) Split() (parent, name string) {
	if b.IsDirectory() {
		dir, name := path.Split(b.Path)
		if dir == "/" {
			return b.directoryURL(b.Path), ""
		}
		return b.directoryURL(strings.TrimSuffix(dir, "/")), name
	}
	dir, name := path.Split(b.Prefix)
	u := url.URL{Scheme: b.Scheme, Host: b.Bucket, Path: "/" + strings.TrimSuffix(dir, "/")}
	return u.String() + b.query, name
}

// directoryURL returns the URL of another directory, with the layout in the URL.
func (b Backing) directoryURL(path string) string {
	u := DirectoryURL(path)
	if b.Layout != "" {
		u += "?" + url.Values{"layout": {b.Layout}}.Encode()
	}
	return u
}

// DirectoryURL returns the backing URL of a directory of the nodes, an absolute path.
func DirectoryURL(path string) string { return (&url.URL{Scheme: "file", Path: path}).String() }

// Object returns a text that is different for every two objects, and the same for all URLs of one. Name
// is below the directory or prefix that Split returns. "" means the object of the URL itself.
func (b Backing) Object(name string) string {
	at := b.Path + b.Prefix
	if name == "" {
		return b.objectAt(at)
	}
	if parent := path.Dir(at); parent != "/" {
		at = parent
	}
	return b.objectAt(path.Join(at, name))
}

// Below returns the text of Object for a name below the URL itself.
func (b Backing) Below(name string) string { return b.objectAt(path.Join(b.Path+b.Prefix, name)) }

func (b Backing) objectAt(at string) string {
	if b.IsDirectory() {
		return at
	}
	return b.Scheme + "://" + b.Bucket + "/" + b.server() + "/" + at
}
