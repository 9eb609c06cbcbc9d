#!/usr/bin/env bash
# Makes sure of what the tests of bbmount need: programs that work on a mount, and the
# kernel's FUSE. Installs the programs where that is allowed, and else says what is missing.
set -euo pipefail

[ -e /dev/fuse ] || modprobe fuse 2>/dev/null || echo "note: there is no /dev/fuse: nothing can be mounted in tests."

missing=()
for tool in cmp dd diff find findmnt git sqlite3 tar; do
	command -v "$tool" >/dev/null || missing+=("$tool")
done
[ ${#missing[@]} -eq 0 ] && exit 0

packages=(coreutils diffutils findutils git sqlite3 tar util-linux)
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	export DEBIAN_FRONTEND=noninteractive
	apt-get install -o DPkg::Lock::Timeout=600 -qq -y "${packages[@]}" >/dev/null || {
		apt-get update -qq >/dev/null
		apt-get install -o DPkg::Lock::Timeout=600 -qq -y "${packages[@]}" >/dev/null
	}
	exit 0
fi
echo "note: ${missing[*]} missing: install ${packages[*]} for the tests of bbmount."
