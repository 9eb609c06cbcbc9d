// Package storerules decides which object stores a user may have a daemon use, and with whose credentials, by
// rules of the administrator. It is pure, and must never open a store or send a request.
package storerules

import (
	"cmp"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode"

	"forebay/internal/bb"
)

// Rule permits users to use stores. A list that is nil has the meaning in its comment. All patterns are
// those of path.Match.
type Rule struct {
	Endpoints []string // patterns of scheme://host:port, without the scheme's own port; nil: the site's endpoint
	Buckets   []string // patterns; nil: all
	Profiles  []string // patterns of profiles of the site's credentials; nil: default; empty: none, so users bring their own
	CA        []string // patterns of certificate files that may be named, besides the site's; nil: none
	Users     []string // names, uids, @group, @gid; nil: all users
}

// Site is the part of the daemon's configuration about stores.
type Site struct {
	Endpoint string
	CA       string
}

// DefaultProfile is the profile that a URL means without one.
const DefaultProfile = "default"

// Default are the rules of a daemon whose administrator has written none. The site's credentials go
// to the site's endpoint alone, and to every other store go credentials that the user brings, over
// TLS.
func Default() []Rule {
	return []Rule{{}, {Endpoints: []string{"https://*"}, Profiles: []string{}}}
}

// Use is the use that a backing URL requests.
type Use struct {
	Endpoint string // as Normalize returns it
	Bucket   string
	Profile  string
	CA       string
	Own      bool // with the user's own credentials
}

// readers read the URLs of the kinds of stores that rules can be for. The parts of a rule mean something
// else in the URL of another kind, or nothing.
var readers = map[string]func(bb.Backing) Use{
	"s3": func(where bb.Backing) Use {
		return Use{Endpoint: where.Endpoint(), Bucket: where.Bucket, Profile: where.Param("profile"), CA: where.Param("ca"), Own: where.Param("credentials") != ""}
	},
}

// UseOf reads a backing URL. A kind of stores that no rule can be for is refused.
func UseOf(where bb.Backing, site Site) (Use, error) {
	read := readers[where.Scheme]
	if read == nil {
		return Use{}, bb.E(bb.Permission, "backing", where.Scheme+":", "the administrator's rules cannot be for stores of this kind").
			WithRemedy("choose a store of another kind")
	}
	u := read(where)
	var err error
	u.Endpoint, err = Normalize(cmp.Or(u.Endpoint, site.Endpoint))
	return u, err
}

// Normalize writes an endpoint so that two of the same server are the same text.
func Normalize(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	ascii := !strings.ContainsFunc(endpoint, func(r rune) bool { return r > unicode.MaxASCII })
	if err != nil || !ascii || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", bb.E(bb.Invalid, "backing", "endpoint="+endpoint, "is not a URL of a host").WithRemedy("write endpoint=https://host:port")
	}
	host := strings.TrimSuffix(strings.ToLower(u.Host), ":"+map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return u.Scheme + "://" + strings.TrimSuffix(host, "."), nil
}

// Check returns nil if one of the rules for this user permits the use. The error names the part that no
// rule has, and nothing of other users' rules. IsUser reports whether an entry of Users means the user.
// An entry that it fails for means no user. If then no rule fits, the error is of kind Unavailable.
func Check(rules []Rule, site Site, u Use, isUser func(string) (bool, error)) error {
	home, err := Normalize(site.Endpoint)
	if err != nil {
		return err
	}
	left := slices.Clone(rules)
	unsaid := false
	means := func(name string) bool {
		is, err := isUser(name)
		unsaid = unsaid || err != nil
		return is && err == nil
	}
	for _, step := range []struct {
		what, value string
		fits        func(*Rule) bool
	}{
		{"endpoint", u.Endpoint, func(r *Rule) bool {
			return fits(r.Endpoints, []string{literally(home)}, u.Endpoint) && (r.Users == nil || slices.ContainsFunc(r.Users, means))
		}},
		{"bucket", u.Bucket, func(r *Rule) bool { return fits(r.Buckets, []string{"*"}, u.Bucket) }},
		{"profile", orDefault(u.Profile), func(r *Rule) bool {
			return u.Own || fits(r.Profiles, []string{DefaultProfile}, orDefault(u.Profile))
		}},
		{"ca", u.CA, func(r *Rule) bool {
			return u.Own || u.CA == "" || u.CA == site.CA || path.Clean(u.CA) == u.CA && fits(r.CA, nil, u.CA)
		}},
	} {
		left = slices.DeleteFunc(left, func(r Rule) bool { return !step.fits(&r) })
		if len(left) > 0 {
			continue
		}
		if unsaid {
			return bb.E(bb.Unavailable, "backing", step.what+"="+step.value, "the system's user database cannot resolve the names in the administrator's rules").
				WithRemedy("check the system's user database; see the daemon's log")
		}
		return bb.E(bb.Permission, "backing", step.what+"="+step.value, why(u)).
			WithRemedy(remedies[step.what])
	}
	return nil
}

// why names no more than the parts of the user's request.
func why(u Use) string {
	if u.Own {
		return "no rule of this daemon's administrator allows this user to use it"
	}
	return "no rule of this daemon's administrator allows this user to use it with the site's credentials"
}

var remedies = map[string]string{
	"endpoint": "ask for a rule in stores of the daemon's configuration; http:// needs one in any case",
	"bucket":   "ask for a rule in stores of the daemon's configuration",
	"profile":  "bring credentials of your own: credentials=/path/of/file, or ask for a rule in stores of the daemon's configuration",
	"ca":       "bring credentials of your own: credentials=/path/of/file, or ask for a rule in stores of the daemon's configuration",
}

func orDefault(profile string) string {
	if profile == "" {
		return DefaultProfile
	}
	return profile
}

// fits reports whether a value fits one of the patterns, or of those that nil stands for.
func fits(patterns, ifNil []string, value string) bool {
	if patterns == nil {
		patterns = ifNil
	}
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, value)
		return ok && err == nil
	})
}

// literally is the pattern that a text alone fits.
func literally(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}
