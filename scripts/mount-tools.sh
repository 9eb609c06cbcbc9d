#!/usr/bin/env bash
# Checks the tools for the tests of bbmount: programs that work on a mount, and the
# kernel's FUSE. Installs the programs where that is allowed, and else prints the missing ones.
set -euo pipefail

[ -e /dev/fuse ] || modprobe fuse 2>/dev/null || echo "note: there is no /dev/fuse: nothing can be mounted in tests."

missing=()
for tool in busybox cmp crun dd diff find findmnt git sqlite3 tar unshare; do
	command -v "$tool" >/dev/null || missing+=("$tool")
done
[ ${#missing[@]} -eq 0 ] && exit 0

packages=(busybox-static coreutils crun diffutils findutils git sqlite3 tar util-linux)
"$(dirname "$0")"/apt-install.sh "${packages[@]}" && exit 0
echo "note: ${missing[*]} missing: install ${packages[*]} for the tests of bbmount."
