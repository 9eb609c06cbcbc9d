#!/usr/bin/env bash
# Checks the tools for building and testing sdk/python: Python, 3.11 or later, and the packages
# that sdk/python/requirements.txt pins, with hashes, in an environment below .cache. Installs
# Python where that is allowed. Prints the environment's folder. Where it cannot be made, prints the missing
# tools, and exits 1.
set -euo pipefail
cd "$(dirname "$0")/.."

have() {
	command -v python3 >/dev/null && python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}
have || scripts/apt-install.sh python3 python3-venv || true
have || {
	echo "Python, 3.11 or later, or its venv module is missing: install python3 and python3-venv." >&2
	exit 1
}

env=$PWD/.cache/python
# The sources of the environment. It names its folder and the sources in absolute paths.
made=$(python3 -VV; pwd; cat sdk/python/requirements.txt sdk/python/pyproject.toml)
if [ ! -f "$env/made" ] || [ "$(cat "$env/made")" != "$made" ]; then
	rm -rf "$env" sdk/python/src/*.egg-info
	python3 -m venv "$env"
	pip=("$env/bin/python" -m pip --disable-pip-version-check -q)
	"${pip[@]}" install --no-compile --only-binary :all: --require-hashes -r sdk/python/requirements.txt >&2
	"${pip[@]}" install --no-compile --no-deps --no-build-isolation -e sdk/python >&2
	printf '%s' "$made" >"$env/made"
fi
echo "$env"
