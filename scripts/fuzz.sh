#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME (default 3s) and stops at the
# first that finds something. Inputs found earlier stay in Go's build cache.
set -euo pipefail
cd "$(dirname "$0")/.."
fuzztime=${FUZZTIME:-3s}

count=0
while read -r dir target; do
	echo "fuzz $dir $target $fuzztime"
	go test -run '^$' -fuzz "^$target\$" -fuzztime "$fuzztime" "./$dir" </dev/null
	count=$((count + 1))
done < <(
	go list -f '{{range .TestGoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}' ./... |
		grep . | xargs -r grep -HoE '^func Fuzz[A-Za-z0-9_]*' |
		sed -E "s|^$PWD/(.*)/[^/]*:func (.*)|\1 \2|" | sort
)
echo "fuzz: $count targets, nothing found"
