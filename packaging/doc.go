// Package packaging has the sources of the packages, and tests the results of `make packages`. Each package is
// installed in a bare root, its daemon is started there by the unit, and docs/deploy.md and docs/operations.md
// are followed on four hosts. It must never test a daemon that was not installed by a package. The tests have
// the build tag packages (make test-packages).
package packaging
