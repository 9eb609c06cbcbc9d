#!/usr/bin/env bash
# Checks the tools for tests on network namespaces (internal/netnstest): ip and tc.
# Installs them where that is allowed, and else prints the missing ones.
set -euo pipefail

missing=()
for tool in ip tc nsenter; do
	command -v "$tool" >/dev/null || missing+=("$tool")
done
[ ${#missing[@]} -eq 0 ] && exit 0

"$(dirname "$0")"/apt-install.sh iproute2 util-linux && exit 0
echo "note: ${missing[*]} missing: install iproute2 and util-linux for the tests on network namespaces."
