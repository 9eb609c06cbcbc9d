#!/usr/bin/env bash
# Makes sure of what building and testing sdk/java needs: a JDK, 17 or later, and Maven.
# Installs them where that is allowed. Exits 0 when they are there; else says what is
# missing, and exits 1. What Maven itself needs comes from its ordinary repositories.
set -euo pipefail

have() {
	command -v mvn >/dev/null && command -v javac >/dev/null &&
		[ "$(javac -version 2>&1 | sed -E 's/^javac ([0-9]+).*/\1/')" -ge 17 ]
}
have && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	export DEBIAN_FRONTEND=noninteractive
	packages=(default-jdk-headless maven)
	apt-get install -o DPkg::Lock::Timeout=600 -qq -y --no-install-recommends "${packages[@]}" >/dev/null 2>&1 || {
		apt-get update -qq >/dev/null
		apt-get install -o DPkg::Lock::Timeout=600 -qq -y --no-install-recommends "${packages[@]}" >/dev/null
	}
fi
have && exit 0
echo "a JDK, 17 or later, or Maven is missing: install default-jdk-headless and maven." >&2
exit 1
