#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME (default 3s each), a target for each processor at
# a time, and stops at the first that finds something. PKG narrows the packages. Inputs
# found earlier stay in Go's build cache.
set -euo pipefail
cd "$(dirname "$0")/.."
export FUZZTIME=${FUZZTIME:-3s}

read -ra packages <<<"${PKG:-./...}"

# Lines of "folder file…", of packages that have tests.
tests=$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}} {{join .TestGoFiles " "}} {{join .XTestGoFiles " "}}{{end}}' "${packages[@]}")

targets=() # folder, name, folder, name, …
while read -r dir files; do
	[ -n "$dir" ] || continue
	# shellcheck disable=SC2086 # file names of Go packages hold no spaces
	for target in $(cd "$dir" && sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' $files | sort -u); do
		targets+=("$dir" "$target")
	done
done <<<"$tests"

if [ ${#targets[@]} = 0 ]; then
	echo "fuzz: no targets in ${PKG:-./...}" >&2
	exit 1
fi

# Fuzzes target $2 of folder $1. Up to Go 1.26 the end of the time may be reported as
# the target's failure (go.dev/issue/75804): a deadline exceeded, nothing else, and no
# input written. Such a run is repeated, and the third one counts.
fuzz() {
	local out status try
	for try in 1 2 3; do
		status=0
		out=$(cd "$1" && go test -run '^$' -fuzz "^$2\$" -fuzztime "$FUZZTIME" -parallel 1 . </dev/null 2>&1) || status=255 # ends xargs, too
		printf 'fuzz %s %s %s\n%s\n' "${1#"$PWD"/}" "$2" "$FUZZTIME" "$out"
		[ $status = 0 ] && return
		grep -qxE ' +context deadline exceeded' <<<"$out" || break
		grep -qE 'Failing input written|panic:' <<<"$out" && break
		[ $try = 3 ] || echo "fuzz: $2 again: its time ended while Go stopped it"
	done
	exit $status
}
export -f fuzz
# shellcheck disable=SC2016 # the inner shell expands its arguments
printf '%s\0' "${targets[@]}" | xargs -0 -n 2 -P "$(nproc)" bash -c 'fuzz "$1" "$2"' fuzz

echo "fuzz: $((${#targets[@]} / 2)) targets, nothing found"
