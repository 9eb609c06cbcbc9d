#!/usr/bin/env bash
# Checks the tools for the tests of packages: dpkg, rpm, a static busybox for the bare root,
# skopeo, which reads image archives, crun, which runs them, the tools of docs/deploy.md, and systemd with the
# container in which it is booted. Installs them where that is allowed, and else prints the missing ones, and exits 1.
set -euo pipefail

missing=()
for tool in dpkg dpkg-deb rpm busybox skopeo crun openssl curl nsenter unshare systemd-analyze systemd-nspawn setpriv pgrep capsh; do
	command -v "$tool" >/dev/null || missing+=("$tool")
done
[ ${#missing[@]} -eq 0 ] && exit 0

packages=(dpkg rpm busybox-static skopeo crun openssl curl util-linux systemd systemd-sysv systemd-container procps libcap2-bin)
"$(dirname "$0")"/apt-install.sh "${packages[@]}" && exit 0
echo "note: ${missing[*]} missing: install ${packages[*]} for the tests of packages."
exit 1
