#!/usr/bin/env bash
# Makes sure of what tests on network namespaces need (internal/netnstest): ip and tc.
# Installs them where that is allowed, and else says what is missing.
set -euo pipefail

missing=()
for tool in ip tc nsenter; do
	command -v "$tool" >/dev/null || missing+=("$tool")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	export DEBIAN_FRONTEND=noninteractive
	apt-get install -o DPkg::Lock::Timeout=600 -qq -y iproute2 util-linux >/dev/null || {
		apt-get update -qq >/dev/null
		apt-get install -o DPkg::Lock::Timeout=600 -qq -y iproute2 util-linux >/dev/null
	}
	exit 0
fi
echo "note: ${missing[*]} missing: install iproute2 and util-linux for the tests on network namespaces."
