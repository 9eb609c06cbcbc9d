#!/usr/bin/env bash
# Formatting, go vet, staticcheck and go fix over both modules: prints the
# faults and exits non-zero if there are any.
set -uo pipefail
cd "$(dirname "$0")/.."
failed=0

# check NAME COMMAND…: fails if the command does or prints anything, but for Go's lines about
# modules that it downloads for the first time.
check() {
	local name=$1 out status=0
	shift
	out=$("$@" 2>&1) || status=$?
	out=$(grep -v '^go: downloading ' <<<"$out" || true)
	if [ "$status" != 0 ] || [ -n "$out" ]; then
		printf '%s:\n%s\n' "$name" "$out" >&2
		failed=1
	fi
}

# ours lists the Go files that are not generated.
ours() {
	git ls-files --cached --others --exclude-standard -- '*.go' | while read -r f; do
		[ -f "$f" ] && ! grep -qE '^// Code generated .* DO NOT EDIT\.$' "$f" && echo "$f"
	done
	return 0
}

# One build of each tool serves all runs, since staticcheck keeps its findings per build of itself, and with
# cgo it would be another.
tools=$PWD/.cache/bin
mkdir -p "$tools"
check 'build of the tools' go build -C tools -o "$tools/" mvdan.cc/gofumpt honnef.co/go/tools/cmd/staticcheck
mapfile -t files < <(ours)
check gofumpt "$tools/gofumpt" -l "${files[@]}"
check 'go vet' go vet ./...
check 'go vet (tools)' go vet -C tools ./...
# With libfabric, where it is. Without, none of these files is checked.
ofi() {
	CGO_ENABLED=1 "$@" -tags netgo,osusergo,ofi ./rdma/ofi/... ./rdma/route ./bbd
}
if scripts/ofi-tools.sh 2>/dev/null; then
	check 'go vet (ofi)' ofi go vet -cgocall=false
	# cgocall opens the sources at the paths that cgo wrote into its output. With -trimpath, Go's cache shares
	# that output among clones, and a clone may be gone. So only this check compiles for this one.
	check 'go vet (cgo)' env GOFLAGS= CGO_ENABLED=1 go vet -cgocall -tags netgo,osusergo,ofi ./rdma/ofi/fi
	check 'staticcheck (ofi)' ofi "$tools/staticcheck"
elif [ -n "${CI:-}" ]; then
	check libfabric scripts/ofi-tools.sh
fi
check staticcheck "$tools/staticcheck" ./...
check 'go fix' go fix -diff ./...
check 'go mod tidy' go mod tidy -diff
check 'go mod tidy (tools)' go -C tools mod tidy -diff
[ "$failed" = 0 ] && echo "lint: nothing found"
exit "$failed"
