package config

import (
	"reflect"
	"strings"
	"testing"
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
