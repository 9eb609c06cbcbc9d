package config

import "testing"

func TestFabricAddress(t *testing.T) {
	for _, c := range []struct {
		tcp, fabric string
		address     string
		anyPort     bool
	}{
		{"", "", "", false},
		{"", "127.0.0.1:7482", "", false},
		{"10.0.0.1:7481", "", "10.0.0.1:7482", true},
		{"[::1]:7481", "", "[::1]:7482", true},
		{"127.0.0.1:0", "", "127.0.0.1:0", true},
		{"127.0.0.1:65535", "", "127.0.0.1:0", true},
		{"10.0.0.1:7481", "10.1.0.1:9000", "10.1.0.1:9000", false},
		{"10.0.0.1:7481", FabricOff, "", false},
	} {
		l := Listen{TCP: c.tcp, Fabric: c.fabric}
		if address, anyPort := l.FabricAddress(); address != c.address || anyPort != c.anyPort {
			t.Errorf("%+v: %q, %v", l, address, anyPort)
		}
	}
}

func TestFabricNeedsTCP(t *testing.T) {
	for text, right := range map[string]bool{
		`listen: {fabric: "127.0.0.1:7482"}`:                             false,
		`listen: {fabric: off}`:                                          true,
		`listen: {tcp: "127.0.0.1:7481", fabric: "127.0.0.1:7482"}`:      true,
		`listen: {tcp: "127.0.0.1:7481", fabric: "127.0.0.1:7481"}`:      false,
		`listen: {tcp: "127.0.0.1:7481", fabric: "0.0.0.0:7482"}`:        false,
		`listen: {tcp: "127.0.0.1:7481", fabric: "somewhere else"}`:      false,
		`{listen: {tcp: "0.0.0.0:1", fabric: "0.0.0.0:2"}, insecure: 1}`: true,
	} {
		if _, problems := load(t, text); (len(problems) == 0) != right {
			t.Errorf("%s: %v", text, problems)
		}
	}
}
