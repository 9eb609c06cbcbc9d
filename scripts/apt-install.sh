#!/usr/bin/env bash
# apt-install.sh PACKAGE… installs packages of the distribution, in silence but for a failure. Exits 1
# where that cannot be done: without root, or without apt-get.
set -euo pipefail

[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 1
export DEBIAN_FRONTEND=noninteractive
install=(apt-get install -o DPkg::Lock::Timeout=600 -qq -y --no-install-recommends "$@")
"${install[@]}" >/dev/null 2>&1 && exit 0
# A machine may have no lists of packages, or old ones.
output=$(apt-get update -qq 2>&1 && "${install[@]}" 2>&1) || {
	printf '%s\n' "$output" >&2
	exit 1
}
