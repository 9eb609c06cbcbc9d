#!/usr/bin/env bash
# Makes sure of what the tests of slurm/lua need: the oldest and the newest Lua that Slurm
# may have been built with. Installs them where that is allowed, and else says what is
# missing, and exits 1.
set -euo pipefail

missing=()
for version in 5.1 5.4; do
	command -v lua$version >/dev/null || missing+=("lua$version")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	export DEBIAN_FRONTEND=noninteractive
	apt-get install -o DPkg::Lock::Timeout=600 -qq -y --no-install-recommends "${missing[@]}" >/dev/null 2>&1 || {
		apt-get update -qq >/dev/null
		apt-get install -o DPkg::Lock::Timeout=600 -qq -y --no-install-recommends "${missing[@]}" >/dev/null
	}
	exit 0
fi
echo "note: ${missing[*]} missing: install them for the tests of burst_buffer.lua."
exit 1
