#!/usr/bin/env bash
# python-env.sh NAME: makes sure of an environment of Python, 3.11 or later, for tests of sdk/python
# that make test-python does not run. It has the packages that sdk/python/requirements-NAME.txt pins, the
# package itself, and its plug-in of that name, if there is one. Prints the environment's folder, below
# .cache. Where it cannot be made, prints the missing tools, and exits 1.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1

python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
	echo "Python, 3.11 or later, or its venv module is missing: install python3 and python3-venv." >&2
	exit 1
}
env=$PWD/.cache/$name
own=(-e sdk/python)
[ ! -d "sdk/python/$name-plugin" ] || own+=(-e "sdk/python/$name-plugin")
pip=("$env/bin/python" -m pip --disable-pip-version-check -q)
# The sources of the environment. It names its folder and the sources in absolute paths. The pinned packages take
# gigabytes, so a change of the package alone installs the package alone.
made=$(python3 -VV; pwd; cat "sdk/python/requirements-$name.txt")
if [ ! -f "$env/made" ] || [ "$(cat "$env/made")" != "$made" ]; then
	rm -rf "$env"
	python3 -m venv "$env"
	"${pip[@]}" install --no-compile --only-binary :all: --require-hashes -r "sdk/python/requirements-$name.txt" >&2
	printf '%s' "$made" >"$env/made"
fi
package=$(cat sdk/python/pyproject.toml sdk/python/*-plugin/pyproject.toml)
if [ ! -f "$env/package" ] || [ "$(cat "$env/package")" != "$package" ]; then
	"${pip[@]}" install --no-compile --no-deps --no-build-isolation "${own[@]}" >&2
	printf '%s' "$package" >"$env/package"
fi
echo "$env"
