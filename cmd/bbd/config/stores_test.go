package config

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"forebay/internal/nsstest"
)

func TestStores(t *testing.T) {
	for text, want := range map[string][]Store{
		`""`:                    nil,
		"":                      nil,
		"[]":                    {},
		"[{}]":                  {{}},
		"[{users: 5001}]":       {{Users: []string{"5001"}}},
		"[{profiles: []}]":      {{Profiles: []string{}}},
		"[{ca: [/etc/a*.pem]}]": {{CA: []string{"/etc/a*.pem"}}},
		`[{endpoints: ["https://*", http://10.0.0.1:9000], buckets: ["a*"], profiles: x, users: [alice, "@staff"]}]`: {{
			Endpoints: []string{"https://*", "http://10.0.0.1:9000"}, Buckets: []string{"a*"}, Profiles: []string{"x"}, Users: []string{"alice", "@staff"},
		}},
	} {
		var got []Store
		if err := parse(&got, text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %#v (%v)", text, got, err)
		}
		var again []Store
		if err := parse(&again, format(&got)); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%s: written as %s, which is read as %#v (%v)", text, format(&got), again, err)
		}
		c := Default()
		c.Stores, c.Name = got, "n"
		if p := c.Validate(); len(p) > 0 {
			t.Errorf("%s: %v", text, p)
		}
	}
	for _, text := range []string{"x", "{}", "[x]", "[{colour: red}]", "[{users: [[x]]}]", "[{users: {a: b}}]", "[", "1"} {
		got := []Store{{}}
		if err := parse(&got, text); err == nil || len(got) != 1 {
			t.Errorf("%s: got %#v (%v)", text, got, err)
		}
	}
	c := Default()
	c.Name = "n"
	c.Stores = []Store{{Endpoints: []string{"*", "host", "https://", "https://a/b", "https://A", "https://u@h", "https://h:443", "http://h:80"}, Buckets: []string{"[", ""}, CA: []string{"x.pem"}, Users: []string{"@"}}, {Users: []string{}}}
	if p := c.Validate(); len(p) != 13 || !strings.HasPrefix(p[0].Key, "stores[0].") {
		t.Errorf("%d problems: %v", len(p), p)
	}
}

// For a name that the system does not have, the check warns, and finds no problem.
func TestUnknownUsers(t *testing.T) {
	nsstest.Run(t, func(t *testing.T, s *nsstest.Source) {
		s.Users("carol:x:50003:50003::/:/bin/sh\n")
		s.Groups("lab:x:50011:carol\n")
		file := write(t, `stores: [{users: [root, carol, 4711, "*"]}, {users: ["@lab", "@root", "@4711", nobody-has-this, "@nor-this", carol]}]`)
		var out, stderr bytes.Buffer
		cmd := NewConfigCommand()
		cmd.SetOut(&out)
		cmd.SetErr(&stderr)
		cmd.SetArgs([]string{"check", "--config", file})
		if err := cmd.Execute(); err != nil || !strings.Contains(out.String(), "no problem found") {
			t.Errorf("%v\n%s%s", err, &out, &stderr)
		}
		const why = "the system has no such name, so the rule applies to nobody by it (see getent passwd and getent group, or write a number)\n"
		if got, want := stderr.String(), "warning: stores[1].users: \"nobody-has-this\": "+why+"warning: stores[1].users: \"@nor-this\": "+why; got != want {
			t.Errorf("warnings:\n%s\nwant:\n%s", got, want)
		}
	})
}
