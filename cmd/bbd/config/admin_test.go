package config

import (
	"strings"
	"testing"
)

func TestAdminSocketPath(t *testing.T) {
	long := "/" + strings.Repeat("d", 100) + "/b"
	for _, c := range []struct {
		socket, admin, want string
	}{
		{"/run/forebay/bbd.sock", "", "/run/forebay/bbd-admin.sock"},
		{"/run/forebay/n1", "", "/run/forebay/n1-admin.sock"},
		{"/run/forebay/bbd.sock", "/root/a.sock", "/root/a.sock"},
		{"/run/forebay/bbd.sock", "off", ""},
		{"", "", ""},
		{"", "/root/a.sock", "/root/a.sock"},
		{long, "", ""},
	} {
		l := Listen{Socket: c.socket, AdminSocket: c.admin}
		if got := l.AdminSocketPath(); got != c.want {
			t.Errorf("%q and %q: got %q, want %q", c.socket, c.admin, got, c.want)
		}
	}
}

// TestBeyondLoopback: metrics are open to all, and nothing else is.
func TestBeyondLoopback(t *testing.T) {
	for text, want := range map[string]bool{
		`listen: {admin: "0.0.0.0:7480"}`:                      true,
		`listen: {admin: "somewhere"}`:                         false,
		`listen: {admin: "0.0.0.0:7480", tcp: "0.0.0.0:7481"}`: false,
		`{listen: {admin: "0.0.0.0:7480"}, insecure: true}`:    true,
		`nats: {embedded: {listen: "0.0.0.0:4222"}}`:           false,
		`cluster: {listen: "0.0.0.0:7483"}`:                    false,
	} {
		if _, problems := load(t, text); (len(problems) == 0) != want {
			t.Errorf("%s: %v", text, problems)
		}
	}
}
