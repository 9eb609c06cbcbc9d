#!/usr/bin/env bash
# Checks the tools for building and testing sdk/java: a JDK, 17 or later, and Maven.
# Installs them where that is allowed. Exits 0 when they are there, else prints the missing ones, and exits 1.
# Maven's own artefacts come from its ordinary repositories.
set -euo pipefail

have() {
	command -v mvn >/dev/null && command -v javac >/dev/null &&
		[ "$(javac -version 2>&1 | sed -E 's/^javac ([0-9]+).*/\1/')" -ge 17 ]
}
have && exit 0

"$(dirname "$0")"/apt-install.sh default-jdk-headless maven || true
have && exit 0
echo "a JDK, 17 or later, or Maven is missing: install default-jdk-headless and maven." >&2
exit 1
