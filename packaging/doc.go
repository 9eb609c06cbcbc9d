// Package packaging has what the packages are made of, and tests what `make packages` makes: each
// package is installed in a bare root, its daemon is started there as the unit says, and
// docs/deploy.md and docs/operations.md are followed on four hosts. The tests have the build tag
// packages (make test-packages).
package packaging
