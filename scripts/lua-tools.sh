#!/usr/bin/env bash
# Checks the tools for the tests of slurm/lua: the oldest and the newest Lua that Slurm
# may have been built with. Installs them where that is allowed, and else prints the
# missing ones, and exits 1.
set -euo pipefail

missing=()
for version in 5.1 5.4; do
	command -v lua$version >/dev/null || missing+=("lua$version")
done
[ ${#missing[@]} -eq 0 ] && exit 0

"$(dirname "$0")"/apt-install.sh "${missing[@]}" && exit 0
echo "note: ${missing[*]} missing: install them for the tests of burst_buffer.lua."
exit 1
