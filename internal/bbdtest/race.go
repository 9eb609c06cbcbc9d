//go:build race

package bbdtest

// Tests that are built with the race detector and checked locks start daemons that are.
var (
	suffix    = "-race"
	buildArgs = []string{"-race", "-tags", "netgo,osusergo,lockorder"}
	buildEnv  = "CGO_ENABLED=1"
)
