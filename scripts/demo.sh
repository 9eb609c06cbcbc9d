#!/usr/bin/env bash
# Runs the demo with the binaries that `make build` has made. DIR is the tree whose content the burst is made
# of. Without it, the Go toolchain's.
set -euo pipefail
cd "$(dirname "$0")/.."
exec go run ./cmd/demo -bin bin ${DIR:+-tree "$DIR"}
