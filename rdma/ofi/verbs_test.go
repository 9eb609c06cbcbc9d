//go:build ofi && cgo && verbs

package ofi

import "testing"

// TestConformanceVerbs needs a verbs device: scripts/rxe.sh has one.
func TestConformanceVerbs(t *testing.T) { suite(t, "verbs") }
