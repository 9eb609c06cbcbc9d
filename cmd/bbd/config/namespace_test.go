package config

import (
	"slices"
	"testing"
)

// TestEngineAlone: a log is served by a daemon that stands alone with its embedded server, and by no
// other one.
func TestEngineAlone(t *testing.T) {
	for text, refused := range map[string]bool{
		"namespace: {engine: log}":                                                                false,
		"namespace: {engine: buckets}\nnats: {url: \"nats://h\"}":                                 false,
		"namespace: {engine: log}\nnats: {url: \"nats://h\"}":                                     true,
		"namespace: {engine: log}\nnats: {servers: \"h\"}":                                        true,
		"namespace: {engine: log}\ncluster: {listen: \"127.0.0.1:7483\"}":                         false,
		"namespace: {engine: log}\ncluster: {listen: \"127.0.0.1:7483\"}\nnats: {servers: \"h\"}": false,
		"namespace: {engine: auto}\nnats: {url: \"nats://h\"}":                                    false,
		"nats: {servers: \"h\"}":                                                                  false,
		"namespace: {engine: tree}":                                                               true,
	} {
		_, problems := load(t, text)
		if got := slices.ContainsFunc(problems, func(p Problem) bool { return p.Key == "namespace.engine" && p.Why != "" && p.Remedy != "" }); got != refused {
			t.Errorf("%s: refused: %v, want %v: %v", text, got, refused, problems)
		}
	}
}
