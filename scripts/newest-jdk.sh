#!/usr/bin/env bash
# Prints the home of the newest JDK of this machine that is newer than the one that Maven
# uses, and nothing if there is none. It looks where JAVA_HOME and such variables of CI
# machines (JAVA_HOME_25_X64, JDK_HOME) point to, and below /usr/lib/jvm.
set -euo pipefail

# feature HOME: the number of the release, 25 of 25.0.3, or 0 if there is no JDK.
feature() {
	local version=0
	if [ -x "$1/bin/javac" ] && [ -r "$1/release" ]; then
		version=$(sed -nE 's/^JAVA_VERSION="(1\.)?([0-9]+).*/\2/p' "$1/release")
	fi
	echo "${version:-0}"
}

used=$(mvn -version | sed -nE 's/^Java version: (1\.)?([0-9]+).*/\2/p')
best=${used:-0}
newest=
while read -r home; do
	v=$(feature "$home")
	if [ "$v" -gt "$best" ]; then
		best=$v
		newest=$home
	fi
done < <(
	env | sed -nE 's/^(JAVA_HOME|JDK_HOME|JAVA_HOME_[A-Za-z0-9_]+|JDK_[0-9]+_HOME)=//p'
	find /usr/lib/jvm -mindepth 1 -maxdepth 1 2>/dev/null
)
[ -z "$newest" ] || echo "$newest"
