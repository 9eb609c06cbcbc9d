// Package sourcetest finds the source tree that a test belongs to, for tests that start its scripts
// or build its commands. It must never depend on paths that the compiler wrote into the binary,
// since with -trimpath they name no directory.
package sourcetest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Root returns the folder of go.mod. Tests run in the folder of their package.
func Root() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	file := strings.TrimSpace(string(out))
	if filepath.Base(file) != "go.mod" {
		return "", fmt.Errorf("no go.mod in the working directory and above it")
	}
	return filepath.Dir(file), nil
}
