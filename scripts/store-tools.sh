#!/usr/bin/env bash
# Checks the tools for the tests of POSIX stores: those that make file systems on devices (internal/powertest).
# Installs them where that is allowed, and else prints the missing ones.
set -euo pipefail

missing=()
for tool in mkfs.ext4 mkfs.xfs; do
	command -v "$tool" >/dev/null || missing+=("$tool")
done
[ ${#missing[@]} -eq 0 ] && exit 0

"$(dirname "$0")"/apt-install.sh e2fsprogs xfsprogs && exit 0
echo "note: ${missing[*]} missing: install e2fsprogs and xfsprogs for the tests of POSIX stores."
