//go:build ofi && cgo && !race

package bbdtest

// Tests that are built with libfabric start daemons that are.
var (
	suffix    = "-ofi"
	buildArgs = []string{"-tags", "netgo,osusergo,ofi"}
	buildEnv  = "CGO_ENABLED=1"
)
