#!/usr/bin/env bash
# Prints a folder with prometheus and promtool for the tests of docs/alerts.yaml and
# docs/grafana.json: that of those that are installed, else Debian's package, unpacked below
# ~/.cache/forebay-tools (FOREBAY_CACHE) once. Nothing is installed, and no service is started.
# Without either it prints the missing tools, and exits 1.
set -euo pipefail

if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
	dirname "$(command -v prometheus)"
	exit 0
fi

cache=${FOREBAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/forebay-tools}
home=$cache/prometheus
if [ ! -x "$home/usr/bin/promtool" ]; then
	if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
		echo "note: prometheus and promtool are missing: install them for the tests of alerts and dashboard." >&2
		exit 1
	fi
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/prometheus.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	cd "$work"
	apt-get download -qq prometheus >/dev/null 2>&1 || {
		apt-get update -qq >/dev/null
		apt-get download -qq prometheus >/dev/null 2>&1
	}
	dpkg -x prometheus_*.deb unpacked
	mv -T unpacked "$home" 2>/dev/null || [ -x "$home/usr/bin/promtool" ] # another one was first
fi
echo "$home/usr/bin"
