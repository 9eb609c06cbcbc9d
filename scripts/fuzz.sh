#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME (default 3s each), a target for each processor at
# a time, and stops at the first that finds something. PKG narrows the packages. Inputs
# found earlier stay in Go's build cache.
#
#	fuzz.sh		led by what each input reaches: compiles everything anew for that; for minutes or hours a target
#	fuzz.sh blind	mutates what is there: the tests as make test has compiled them; for seconds a target
set -euo pipefail
cd "$(dirname "$0")/.."
export FUZZTIME=${FUZZTIME:-3s} BLIND=''
if [ "${1:-}" = blind ]; then
	BLIND=$(mktemp -d)
	trap 'rm -rf "$BLIND"' EXIT
	FUZZ_CACHE=$(go env GOCACHE)/fuzz/$(go list -m)
	export FUZZ_CACHE
fi
export ROOT=$PWD

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

# Builds the test program of folder $1 for blind runs.
build() {
	(cd "$1" && go test -c -vet=off -ldflags '-s -w' -o "$(program "$1")" .)
}

program() { echo "$BLIND/$(tr / _ <<<"${1#"$ROOT"/}").test"; }

# Runs target $2 of folder $1 for its time.
run() {
	cd "$1"
	if [ -n "$BLIND" ]; then
		"$(program "$1")" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$FUZZTIME" -test.parallel 1 \
			-test.fuzzcachedir "$FUZZ_CACHE/${1#"$ROOT"/}"
	else
		go test -run '^$' -fuzz "^$2\$" -fuzztime "$FUZZTIME" -parallel 1 .
	fi
}

# Fuzzes target $2 of folder $1. Up to Go 1.26 the end of the time may be reported as
# the target's failure (go.dev/issue/75804): a deadline exceeded, nothing else, and no
# input written. Such a run is repeated; the third one counts.
fuzz() {
	local out status try
	for try in 1 2 3; do
		status=0
		out=$(run "$1" "$2" </dev/null 2>&1) || status=255 # ends xargs, too
		printf 'fuzz %s %s %s\n%s\n' "${1#"$ROOT"/}" "$2" "$FUZZTIME" "$out"
		[ $status = 0 ] && return
		grep -qxE ' +context deadline exceeded' <<<"$out" || break
		grep -qE 'Failing input written|panic:' <<<"$out" && break
		[ $try = 3 ] || echo "fuzz: $2 again: its time ended while Go stopped it"
	done
	exit $status
}
# shellcheck disable=SC2016 # the inner shells expand their arguments
export -f fuzz run build program
if [ -n "$BLIND" ]; then
	printf '%s\n' "${targets[@]}" | sed -n 'p;n' | uniq | xargs -n 1 -P "$(nproc)" bash -c 'build "$1" || exit 255' build
fi
printf '%s\0' "${targets[@]}" | xargs -0 -n 2 -P "$(nproc)" bash -c 'fuzz "$1" "$2"' fuzz

echo "fuzz: $((${#targets[@]} / 2)) targets, nothing found"
