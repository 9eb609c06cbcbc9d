package s3

import (
	"errors"
	"net/http"
	"path"
	"strings"
	"testing"

	"forebay/flusher/backing"
)

// race is a store of versitygw, which compares the entity tag of a DELETE, and not that of an
// object that a copy replaces. Before the first request that on selects, other puts objects of its
// own.
type race struct {
	*Store
	other *Store
	on    func(*http.Request) bool
}

// ignoreTags takes the conditions from DELETEs, as a store without conditional DELETEs ignores
// them.
func ignoreTags(r *http.Request) {
	if r.Method == http.MethodDelete {
		r.Header.Del("If-Match")
	}
}

func newRace(t *testing.T, change func(*http.Request)) *race {
	server := start(t)
	url := server.URL(server.Bucket(t, "race"), "p")
	r := &race{other: open(t, url, options())}
	opts := options()
	opts.Transport = between{request: func(q *http.Request) *http.Response {
		if r.on != nil && r.on(q) {
			r.on = nil
			r.mustPut(t, r.other, path.Base(q.URL.Path), "theirs")
		}
		if change != nil {
			change(q)
		}
		return nil
	}}
	r.Store = open(t, url, opts)
	return r
}

func (r *race) mustPut(t *testing.T, s *Store, name, content string) backing.Version {
	t.Helper()
	o, err := s.Put(t.Context(), name, backing.NewBytes([]byte(content)), backing.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o.Version()
}

func (r *race) expect(t *testing.T, want map[string]string) {
	t.Helper()
	found := map[string]string{}
	for name, p := range contents(t, r.other) {
		found[name] = string(p)
	}
	for _, name := range []string{"f", "g"} {
		if found[name] != want[name] {
			t.Errorf("%s holds %q, want %q", name, found[name], want[name])
		}
	}
}

func requestOf(method, name string) func(*http.Request) bool {
	return func(r *http.Request) bool { return r.Method == method && strings.HasSuffix(r.URL.Path, "/"+name) }
}

func TestReplacedBeforeItIsRemoved(t *testing.T) {
	r := newRace(t, nil)
	is := r.mustPut(t, r.Store, "f", "ours")
	r.on = requestOf(http.MethodDelete, "f")
	if err := r.RemoveIf(t.Context(), "f", is); !errors.Is(err, backing.ErrForeign) {
		t.Errorf("error %v, want a conflict", err)
	}
	r.expect(t, map[string]string{"f": "theirs"})
}

// TestReplacedInARename: the copy is made, and the old name is another's by then.
func TestReplacedInARename(t *testing.T) {
	r := newRace(t, nil)
	is := r.mustPut(t, r.Store, "f", "ours")
	r.on = requestOf(http.MethodDelete, "f")
	if err := r.RenameIf(t.Context(), "f", "g", is, backing.Version{}); !errors.Is(err, backing.ErrForeign) {
		t.Errorf("error %v, want a conflict", err)
	}
	r.expect(t, map[string]string{"f": "theirs", "g": "ours"})
}

// TestCutRename: a rename that ended between the copy and the removal is ended by the next call.
func TestCutRename(t *testing.T) {
	for name, change := range map[string]func(*http.Request){"compares": nil, "ignores": ignoreTags} {
		t.Run(name, func(t *testing.T) {
			r := newRace(t, change)
			is := r.mustPut(t, r.Store, "f", "ours")
			over := r.mustPut(t, r.Store, "g", "older")
			r.mustPut(t, r.other, "g", "ours")
			for _, replaces := range []backing.Version{over, {}} {
				if err := r.RenameIf(t.Context(), "f", "g", is, replaces); err != nil {
					t.Fatal(err)
				}
				r.expect(t, map[string]string{"g": "ours"})
				is = r.mustPut(t, r.Store, "f", "ours")
			}
		})
	}
}

// TestStoreThatComparesNoTags is looked at before each step.
func TestStoreThatComparesNoTags(t *testing.T) {
	r := newRace(t, ignoreTags)
	is := r.mustPut(t, r.Store, "f", "ours")
	theirs := r.mustPut(t, r.other, "g", "theirs")
	if err := r.RemoveIf(t.Context(), "g", is); !errors.Is(err, backing.ErrForeign) {
		t.Errorf("removal: error %v, want a conflict", err)
	}
	if err := r.RenameIf(t.Context(), "f", "g", is, backing.Version{}); !errors.Is(err, backing.ErrForeign) {
		t.Errorf("rename: error %v, want a conflict", err)
	}
	r.expect(t, map[string]string{"f": "ours", "g": "theirs"})
	if err := r.RenameIf(t.Context(), "f", "g", is, theirs); err != nil {
		t.Error(err)
	}
	r.expect(t, map[string]string{"g": "ours"})
	if r.removals.compares || r.copies.compares || !r.removals.tried || !r.copies.tried {
		t.Error("the store was not tried out, or is said to compare tags")
	}
}

// TestCopiesThatCompare: the condition of a copy is sent to a store that compares it. versitygw
// does not. Its answers to the two that are to be refused are made up.
func TestCopiesThatCompare(t *testing.T) {
	var sent []string
	server := start(t)
	opts := options()
	opts.Transport = between{request: func(q *http.Request) *http.Response {
		if q.Header.Get("X-Amz-Copy-Source") == "" {
			return nil
		}
		sent = append(sent, q.Header.Get("If-None-Match")+q.Header.Get("If-Match"))
		if len(sent) != 2 && len(sent) != 3 && len(sent) != 5 {
			return nil
		}
		answer, _ := answers(http.StatusPreconditionFailed, "PreconditionFailed")(q)
		return answer
	}}
	s := open(t, server.URL(server.Bucket(t, "copies"), ""), opts)
	r := &race{Store: s, other: s}
	is, over := r.mustPut(t, s, "f", "ours"), r.mustPut(t, s, "g", "older")
	if err := s.RenameIf(t.Context(), "f", "g", is, over); err != nil {
		t.Fatal(err)
	}
	is = r.mustPut(t, s, "f", "ours again")
	if err := s.RenameIf(t.Context(), "f", "h", is, backing.Version{}); !errors.Is(err, backing.ErrForeign) {
		t.Errorf("error %v, want a conflict", err)
	}
	want := []string{"*", "*", `"` + wrongTag + `"`, `"` + over.ETag + `"`, "*"}
	if strings.Join(sent, " ") != strings.Join(want, " ") {
		t.Errorf("sent %q, want %q", sent, want)
	}
	r.expect(t, map[string]string{"f": "ours again", "g": "ours"})
}

// TestRenameIfWithoutChecksums ends a cut rename on a store that reports no checksums.
func TestRenameIfWithoutChecksums(t *testing.T) {
	server := start(t)
	opts := options()
	opts.Transport = between{answer: func(r *http.Response) { r.Header.Del(checksumHeader) }}
	s := open(t, server.URL(server.Bucket(t, "plain"), "")+"&verify=read", opts)
	r := &race{Store: s, other: s}
	is := r.mustPut(t, s, "f", "ours")
	r.mustPut(t, s, "g", "ours")
	r.mustPut(t, s, "h", "else")
	if err := s.RenameIf(t.Context(), "f", "h", is, backing.Version{}); !errors.Is(err, backing.ErrForeign) {
		t.Errorf("error %v, want a conflict", err)
	}
	if err := s.RenameIf(t.Context(), "f", "g", is, backing.Version{}); err != nil {
		t.Fatal(err)
	}
	r.expect(t, map[string]string{"g": "ours"})
}
