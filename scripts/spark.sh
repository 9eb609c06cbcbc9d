#!/usr/bin/env bash
# The Spark that the tests use:
#
#   spark.sh                  get it, once, and print its folder (a SPARK_HOME)
#   spark.sh bench CLASS URL  run TeraSortBench or PageRankBench (forebay.apps.spark) in a folder of a
#                             store, with two executors as processes; it prints a line. More arguments:
#                             how large. Needs `make build build-spark`. Environment:
#                             SPARK_OPTS, more arguments for spark-submit
#
# It is PyPI's pyspark, jars, programs and all, unpacked below $FOREBAY_CACHE
# (default: $XDG_CACHE_HOME/forebay-tools, ~/.cache/forebay-tools); 0.5 GB are downloaded, and
# 0.6 GB stay. Version and checksum are pinned here. Exits 1, and names the missing file, when it
# cannot be had.
set -euo pipefail

version=4.1.4
sha256=bcbd5e18690cf79d438e97210ad06fb8d451a251bb77becc2b0418868d2acd73

cache=${FOREBAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/forebay-tools}
home=$cache/pyspark-$version

say() { printf 'spark.sh: %s\n' "$*" >&2; }
pip() { python3 -m pip --disable-pip-version-check "$@"; }

# python3 runs PySpark's own part too.
have_python() { python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }
tools() {
	have_python && { [ -d "$home" ] || pip --version >/dev/null 2>&1; } && return
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		export DEBIAN_FRONTEND=noninteractive
		local packages=(python3 python3-pip python3-setuptools python3-wheel)
		apt-get install -o DPkg::Lock::Timeout=600 -qq -y --no-install-recommends "${packages[@]}" >/dev/null 2>&1 || {
			apt-get update -qq >/dev/null
			apt-get install -o DPkg::Lock::Timeout=600 -qq -y --no-install-recommends "${packages[@]}" >/dev/null
		} || true
	fi
	have_python || { say "python3, 3.10 or later, is missing: install python3."; return 1; }
	[ -d "$home" ] || pip --version >/dev/null 2>&1 || { say "pip is missing: install python3-pip."; return 1; }
}
tools

if [ ! -d "$home" ]; then
	say "getting Spark $version, once: 0.5 GB, about a minute"
	mkdir -p "$cache"
	# Under another name first, so that an interrupted download leaves nothing that looks whole.
	making=$(mktemp -d "$cache/.pyspark-$version.XXXXXX")
	trap 'rm -rf "$making"' EXIT
	printf 'pyspark==%s --hash=sha256:%s\n' "$version" "$sha256" >"$making/requirements"
	if ! pip download -q --no-cache-dir --no-deps --require-hashes -d "$making" -r "$making/requirements" >&2; then
		say "cannot get pyspark $version: it needs, this once, a Python package index that pip can reach (pip config list)."
		exit 1
	fi
	# The archive of the sources has the folders of an installed Spark, under deps and lib.
	mkdir "$making/home"
	tar -xzf "$making/pyspark-$version.tar.gz" -C "$making/home" --no-same-owner --strip-components=1
	(
		cd "$making/home"
		mv deps/* .
		rmdir deps
		mkdir python
		mv pyspark lib python/
	)
	# Somebody else may have been faster.
	mv -T "$making/home" "$home" 2>/dev/null || [ -d "$home" ]
fi

if [ ! -e "$home/jars/spark-core_2.13-$version.jar" ]; then
	say "$home is not Spark $version: remove it, and call this again."
	exit 1
fi
if [ "${1:-}" != bench ]; then
	echo "$home"
	exit
fi

[ $# -ge 3 ] || { say "usage: spark.sh bench CLASS URL [ARGUMENT...]"; exit 2; }
class=forebay.apps.spark.$2
shift 2
sdk=$(cd "$(dirname "$0")/../sdk/java" && pwd)
jars=$(echo "$sdk"/spark/target/forebay-spark-*-all.jar "$sdk"/apps-spark/target/forebay-apps-spark-*-all.jar)
case $jars in *\**) say "the jars are not there: make build build-spark"; exit 1 ;; esac
# Executors write their logs into a folder of SPARK_HOME: one of links, for this run.
SPARK_HOME=$(mktemp -d)
export SPARK_HOME SPARK_LOCAL_IP=127.0.0.1
trap 'rm -rf "$SPARK_HOME"' EXIT
ln -s "$home"/* "$SPARK_HOME"
# shellcheck disable=SC2086 # several arguments
"$SPARK_HOME"/bin/spark-submit --master 'local-cluster[2,1,1024]' --class "$class" \
	--driver-class-path "${jars/ /:}" --conf "spark.executor.extraClassPath=${jars/ /:}" \
	--conf spark.ui.enabled=false --conf "spark.local.dir=$SPARK_HOME/local" ${SPARK_OPTS:-} \
	spark-internal "$@" 2>"$SPARK_HOME/said" || { cat "$SPARK_HOME/said" >&2; exit 1; }
