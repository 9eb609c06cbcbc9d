package storerules

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"forebay/internal/bb"
)

// isAlice is a user with one group, on a system whose user database fails for some others.
func isAlice(name string) (bool, error) {
	if strings.HasSuffix(name, "unsaid") {
		return true, errors.New("no answer")
	}
	return slices.Contains([]string{"alice", "5001", "@staff", "@100"}, name), nil
}

// A rule with names that the system cannot resolve allows no user, and the refusal is temporary.
func TestUnsaid(t *testing.T) {
	unsaid := Rule{Users: []string{"unsaid", "@unsaid"}}
	site := Site{Endpoint: "https://s3.site.example"}
	for _, c := range []struct {
		about string
		rules []Rule
		want  bb.Kind // 0: it is let be
	}{
		{"alone", []Rule{unsaid}, bb.Unavailable},
		{"before one that fits", []Rule{unsaid, {}}, 0},
		{"in one that fits", []Rule{{Users: []string{"unsaid", "alice"}}}, 0},
		{"beside one of others", []Rule{{Users: []string{"bob"}}, unsaid}, bb.Unavailable},
		{"of another endpoint", []Rule{{Users: unsaid.Users, Endpoints: []string{"https://other.example"}}}, bb.Permission},
		{"that nobody knows", []Rule{{Users: []string{"nobody-knows"}}}, bb.Permission},
	} {
		where, err := bb.ParseBacking("s3://bucket/x")
		if err != nil {
			t.Fatal(err)
		}
		u, err := UseOf(where, site)
		if err == nil {
			err = Check(c.rules, site, u, isAlice)
		}
		if (err == nil) != (c.want == 0) || err != nil && bb.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %v", c.about, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "unsaid") {
			t.Errorf("%s: the error names others: %v", c.about, err)
		}
	}
}

func TestCheck(t *testing.T) {
	site := Site{Endpoint: "https://S3.site.example:443", CA: "/etc/site.pem"}
	listed := []Rule{
		{Users: []string{"bob"}, Endpoints: []string{"https://bobs.example"}},
		{Users: []string{"@staff"}, Endpoints: []string{"https://*.lab.example", "http://10.0.0.1:9000"}, Buckets: []string{"staff-*"}, Profiles: []string{"staff", "x*"}, CA: []string{"/etc/pki/*.pem"}},
		{Users: []string{"5001"}, Endpoints: []string{"https://own.example"}, Profiles: []string{}},
	}
	for _, c := range []struct {
		rules       []Rule
		url         string
		allowed     bool
		what, about string
	}{
		// Without a list.
		{nil, "s3://b/x", true, "", "the site's store"},
		{nil, "s3://b/x?endpoint=https://s3.SITE.example", true, "", "the same, by another spelling"},
		{nil, "s3://b/x?ca=/etc/site.pem&profile=default", true, "", "what the daemon would take anyway"},
		{nil, "s3://b/x?endpoint=http://127.0.0.1:19999", false, "endpoint", "site's credentials to any host"},
		{nil, "s3://b/x?endpoint=https://evil.example", false, "profile", "the same over TLS"},
		{nil, "s3://b/x?endpoint=http://s3.site.example", false, "endpoint", "the site's store without TLS"},
		{nil, "s3://b/x?profile=other", false, "profile", "another profile"},
		{nil, "s3://b/x?ca=/etc/shadow", false, "ca", "any file"},
		{nil, "s3://b/x?endpoint=https://mine.example&credentials=/home/a/c", true, "", "own credentials"},
		{nil, "s3://b/x?endpoint=https://mine.example:9000&credentials=/home/a/c&ca=/home/a/ca.pem&profile=p", true, "", "own credentials and certificates"},
		{nil, "s3://b/x?endpoint=http://mine.example&credentials=/home/a/c", false, "endpoint", "own credentials without TLS"},
		{nil, "s3://b/x?endpoint=https://mine.example&credentials=", false, "profile", "credentials that are none"},
		// With one.
		{listed, "s3://staff-1/x?endpoint=https://a.b.lab.example&profile=x1", true, "", "a pattern"},
		{listed, "s3://staff-1/x?endpoint=https://a.lab.example&profile=staff&ca=/etc/pki/lab.pem", true, "", "a certificate file"},
		{listed, "s3://staff-1/x?endpoint=https://a.lab.example&profile=staff&ca=/etc/pki/../shadow.pem", false, "ca", "a path that leads out"},
		{listed, "s3://staff-1/x?endpoint=https://a.lab.example&profile=staff&ca=/etc/pki/sub/lab.pem", false, "ca", "a path further below"},
		{listed, "s3://staff-1/x?endpoint=https://a.lab.example", false, "profile", "the default profile, which is not listed"},
		{listed, "s3://others/x?endpoint=https://a.lab.example&profile=staff", false, "bucket", "another bucket"},
		{listed, "s3://staff-1/x?endpoint=http://10.0.0.1:9000&profile=staff", true, "", "without TLS, as listed"},
		{listed, "s3://staff-1/x?endpoint=http://10.0.0.2:9000&profile=staff", false, "endpoint", "without TLS, elsewhere"},
		{listed, "s3://b/x", false, "endpoint", "the site's store, which is not listed"},
		{listed, "s3://b/x?endpoint=https://bobs.example", false, "endpoint", "another user's"},
		{listed, "s3://b/x?endpoint=https://own.example", false, "profile", "a store for own credentials"},
		{listed, "s3://b/x?endpoint=https://own.example&credentials=/c", true, "", "with them"},
		{listed, "s3://b/x?endpoint=https://elsewhere.example&credentials=/c", false, "endpoint", "with them, elsewhere"},
		{[]Rule{}, "s3://b/x", false, "endpoint", "a list that lets nobody"},
		// The last of several counts, as for the adaptor.
		{nil, "s3://b/x?endpoint=https://s3.site.example&endpoint=https://evil.example", false, "profile", "an endpoint twice"},
	} {
		where, err := bb.ParseBacking(c.url)
		if err != nil {
			t.Fatal(err)
		}
		rules := c.rules
		if rules == nil {
			rules = Default()
		}
		u, err := UseOf(where, site)
		if err == nil {
			err = Check(rules, site, u, isAlice)
		}
		if (err == nil) != c.allowed || err != nil && (bb.KindOf(err) != bb.Permission || !strings.Contains(err.Error(), c.what+"=")) {
			t.Errorf("%s (%s): %v", c.about, c.url, err)
		}
		if err != nil && strings.Contains(err.Error(), "bob") && !strings.Contains(c.url, "bob") {
			t.Errorf("%s: the error names others: %v", c.about, err)
		}
	}
}

// TestKindWithoutReader: rules are not for a kind of stores whose URLs nothing here reads, not even one that
// allows all users everything.
func TestKindWithoutReader(t *testing.T) {
	site := Site{Endpoint: "https://s3.site.example"}
	u, err := UseOf(bb.Backing{Scheme: "memory", Bucket: "b"}, site)
	if err == nil {
		err = Check([]Rule{{Endpoints: []string{"*"}}, {}}, site, u, isAlice)
	}
	if bb.KindOf(err) != bb.Permission || !strings.Contains(err.Error(), "memory:") {
		t.Errorf("%v, want a refusal that names the kind", err)
	}
}

func TestNormalize(t *testing.T) {
	for endpoint, want := range map[string]string{
		"https://Host": "https://host", "https://host:443": "https://host", "https://host.:443/": "https://host",
		"http://host:80": "http://host", "http://host:443": "http://host:443", "https://[::1]:9000": "https://[::1]:9000",
		"https://good@evil": "", "https://good:x@evil": "", "ftp://host": "", "https://": "", "host": "", "https://host/path": "",
		"https://host?x": "", "https://host#x": "", "https://:443": "", "//host": "", "": "", "https://s3.s\u0131te": "",
	} {
		if got, err := Normalize(endpoint); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q (%v), want %q", endpoint, got, err, want)
		}
	}
}

// FuzzNormalize: two different hosts never become equal, and url.Parse reads the same from the
// result as from the endpoint.
func FuzzNormalize(f *testing.F) {
	f.Add("https://host:443")
	f.Fuzz(func(t *testing.T, endpoint string) {
		got, err := Normalize(endpoint)
		if err != nil {
			return
		}
		again, err := Normalize(got)
		if err != nil || again != got {
			t.Errorf("%q: %q, then %q (%v)", endpoint, got, again, err)
		}
		was, _ := url.Parse(endpoint)
		now, err := url.Parse(got)
		if err != nil || strings.TrimSuffix(strings.ToLower(was.Hostname()), ".") != strings.TrimSuffix(now.Hostname(), ".") {
			t.Errorf("%q became %q", endpoint, got)
		}
	})
}
