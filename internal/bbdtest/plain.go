//go:build (!ofi || !cgo) && !race

package bbdtest

var (
	suffix    = ""
	buildArgs []string
	buildEnv  = "CGO_ENABLED=0"
)
