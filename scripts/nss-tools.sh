#!/usr/bin/env bash
# Checks the tools for the tests of users' names: a source of users besides /etc/passwd
# (libnss-extrausers). Installs it where that is allowed, and else prints the missing ones.
set -euo pipefail

[ -e /var/lib/extrausers ] && command -v getent >/dev/null && exit 0

"$(dirname "$0")"/apt-install.sh libnss-extrausers libc-bin && exit 0
echo "note: install libnss-extrausers for the tests of users' names."
