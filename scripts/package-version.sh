#!/usr/bin/env bash
# Prints the version of packages for the output of `git describe --tags --always --dirty`, and the
# count of commits: valid for dpkg and rpm, and greater for a later commit. A release candidate
# is before its release (~), commits after a tag are after it (+). Before the first tag the count of commits
# decides.
#
#	package-version.sh DESCRIBED COUNT
set -euo pipefail

described=$1 count=$2 dirty=
if [[ $described == *-dirty ]]; then
	described=${described%-dirty} dirty=dirty
fi
if [[ $described =~ ^v?([0-9]+\.[0-9].*)-([0-9]+)-(g[0-9a-f]+)$ ]]; then
	base=${BASH_REMATCH[1]} more=${BASH_REMATCH[2]}.${BASH_REMATCH[3]}
elif [[ $described =~ ^v?([0-9]+\.[0-9].*)$ ]]; then
	base=${BASH_REMATCH[1]} more=
else
	base=0.0.0 more=$count.g$described
fi
more=$more${dirty:+${more:+.}$dirty}
echo "${base//-/\~}${more:++$more}"
