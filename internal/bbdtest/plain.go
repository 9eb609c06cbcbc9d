//go:build !ofi || !cgo

package bbdtest

var (
	suffix    = ""
	buildArgs []string
	buildEnv  = "CGO_ENABLED=0"
)
