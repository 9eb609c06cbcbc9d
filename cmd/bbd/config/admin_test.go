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
