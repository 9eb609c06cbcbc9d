#!/usr/bin/env bash
# Makes sure of what testing forebay.torch needs: Python, 3.11 or later, and the packages that
# sdk/python/requirements-torch.txt pins, 4.4 GB, in an environment below .cache. Prints the
# environment's folder; where it cannot be made, says what is missing, and exits 1.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
	echo "Python, 3.11 or later, or its venv module is missing: install python3 and python3-venv." >&2
	exit 1
}
env=$PWD/.cache/torch
# What the environment was made of. It names its folder and the sources in absolute paths.
made=$(python3 -VV; pwd; cat sdk/python/requirements-torch.txt sdk/python/pyproject.toml)
if [ ! -f "$env/made" ] || [ "$(cat "$env/made")" != "$made" ]; then
	rm -rf "$env"
	python3 -m venv "$env"
	pip=("$env/bin/python" -m pip --disable-pip-version-check -q)
	"${pip[@]}" install --no-compile --only-binary :all: -r sdk/python/requirements-torch.txt >&2
	"${pip[@]}" install --no-compile --no-deps --no-build-isolation -e sdk/python >&2
	printf '%s' "$made" >"$env/made"
fi
echo "$env"
