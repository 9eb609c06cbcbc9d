#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME (default 3s each) and stops at the first that
# finds something. PKG narrows the packages. Inputs found earlier stay in Go's
# build cache.
set -euo pipefail
cd "$(dirname "$0")/.."
fuzztime=${FUZZTIME:-3s}

read -ra packages <<<"${PKG:-./...}"

# Lines of "folder file…", of packages that have tests.
tests=$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}} {{join .TestGoFiles " "}} {{join .XTestGoFiles " "}}{{end}}' "${packages[@]}")

count=0
while read -r dir files; do
	[ -n "$dir" ] || continue
	# shellcheck disable=SC2086 # file names of Go packages hold no spaces
	for target in $(cd "$dir" && sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' $files | sort -u); do
		echo "fuzz ${dir#"$PWD"/} $target $fuzztime"
		(cd "$dir" && go test -run '^$' -fuzz "^$target\$" -fuzztime "$fuzztime" . </dev/null)
		count=$((count + 1))
	done
done <<<"$tests"

if [ "$count" = 0 ]; then
	echo "fuzz: no targets in ${PKG:-./...}" >&2
	exit 1
fi
echo "fuzz: $count targets, nothing found"
