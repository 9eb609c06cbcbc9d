#!/usr/bin/env bash
# Measures programs side by side on bb://, file:// and hdfs://, in one run, one after the other, and
# prints a table in Markdown. `make bench-apps` builds its parts and calls it:
#
#	scripts/bench-apps.sh [SPARK_HOME]
#
# It starts a daemon whose buffer flushes to a folder on the disk of $DIR (default: .cache), and a HDFS
# of one name node and one data node, replication one, on a tmpfs. file:// is that same disk, where the
# mount of a parallel file system would be. Everything is removed at the end. Needs about 10 GiB of
# memory and 10 GiB of disk. $PARTS narrows it: dfsio hbase spark; $SCALE, a divisor of how much data
# there is, and $MEMORY, the daemon's, make it small, to try it: SCALE=16 MEMORY=1GiB.
set -uo pipefail
cd "$(dirname "$0")/.."
spark_home=${1:-}
parts=${PARTS:-dfsio hbase spark}
memory=${MEMORY:-4GiB}
scale=${SCALE:-1}

say() { printf 'bench-apps: %s\n' "$*" >&2; }
mkdir -p "${DIR:=.cache}"
dir=$(mktemp -d "$(realpath "$DIR")/bench-apps.XXXXXX")
ram=$(mktemp -d /dev/shm/bench-apps.XXXXXX)
bbd=
hdfs=

# shellcheck disable=SC2329 # the trap calls it
stop() {
	for pid in $hdfs $bbd; do
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	bin/bbd purge --discard --dir "$dir/bbd" >/dev/null || say "$dir is left over"
	rm -rf "$dir" "$ram"
}
trap stop EXIT
trap 'exit 130' INT TERM

# Waits until a command succeeds, as long as the process lives.
await() {
	local pid=$1
	shift
	for _ in $(seq 600); do
		"$@" >/dev/null 2>&1 && return
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.2
	done
	return 1
}

mkdir "$dir/store" "$dir/file" "$dir/scratch"
bin/bbd --dev --dir "$dir/bbd" --memory "$memory" >"$dir/bbd.log" 2>&1 &
bbd=$!
export FOREBAY_SOCKET=unix://$dir/bbd/bbd.sock
if ! await "$bbd" bin/bbctl buffer create bench --backing "file://$dir/store"; then
	tail -n 20 "$dir/bbd.log" >&2
	say "bbd does not serve"
	exit 1
fi

apps=$(cat sdk/java/apps/target/classpath):sdk/java/apps/target/test-classes
hbase=sdk/java/apps-hbase/target/test-classes:$(cat sdk/java/apps-hbase/target/classpath)
java -Xmx1g -cp "$apps" forebay.apps.mapreduce.HdfsServer "$ram/hdfs" >"$dir/hdfs.log" 2>&1 &
hdfs=$!
mkdir "$ram/hdfs"
if ! await "$hdfs" test -s "$ram/hdfs/url"; then
	tail -n 20 "$dir/hdfs.log" >&2
	say "HDFS does not serve"
	exit 1
fi
declare -A url=([bb]=bb://bench [file]=file://$dir/file [hdfs]=$(cat "$ram/hdfs/url"))
declare -A pids=([bb]=$bbd [file]='' [hdfs]=$hdfs)

failed=0
# Does a part on a store and keeps the rows that it prints. One that fails leaves a gap in the table.
measure() {
	local part=$1 store=$2
	shift 2
	say "$part on $store"
	if ! FOREBAY_BENCH_PIDS=${pids[$store]} timeout -k 10 300 "$@" >"$dir/out" 2>"$dir/err"; then
		failed=1
		tail -n 20 "$dir/out" "$dir/err" >&2
		say "$part on $store failed"
	fi
	# The output of Spark's benchmarks, as a row.
	sed -i -E 's/^(terasort|pagerank) ([a-z]+):[^\t]*\t([0-9.]+) s\t([0-9.]+) s of.*/row\t\1, s\t\2\t\3\t\4/' "$dir/out"
	grep -a '^row	' "$dir/out" | tee -a "$dir/rows" >&2
}

for store in bb file hdfs; do
	base=${url[$store]}
	for part in $parts; do
		case $part in
		dfsio)
			measure TestDFSIO "$store" java -Xmx1g -cp "$apps" \
				forebay.apps.mapreduce.DfsioBench "$base/dfsio" "$dir/scratch" 8 $((128 / scale)) ;;
		hbase)
			measure HBase "$store" java -Xmx512m --add-opens=java.base/java.nio=ALL-UNNAMED -cp "$hbase" \
				forebay.apps.hbase.HBaseBench "$base/hbase" "$dir/hbase-$store" $((10000 / scale)) ;;
		spark)
			[ -n "$spark_home" ] || continue
			# The one with TeraGen in it, and on Spark's own class path the users' jars.
			jar=$(echo sdk/java/apps-spark/target/forebay-apps-spark-*-all.jar)
			ours=$(echo sdk/java/spark/target/forebay-spark-*-all.jar):$(tr : '\n' <<<"$apps" | grep aws-crt)
			for job in TeraSortBench:3000000 PageRankBench:300000; do
				size=${job#*:} job=${job%:*}
				measure "$job" "$store" "$spark_home/bin/spark-submit" --master 'local[2]' --driver-memory 2g \
					--conf spark.hadoop.forebay.committer.durability=resident \
					--conf spark.hadoop.dfs.replication=1 --conf spark.ui.enabled=false \
					--conf "spark.local.dir=$dir/scratch" \
					--driver-class-path "$ours" \
					--class "forebay.apps.spark.$job" "$jar" "$base/$job" $((size / scale))
			done ;;
		esac
	done
done

printf '\n%s, %s processors, %s; buffer and file:// on %s (%s), hdfs:// on a tmpfs\n\n' \
	"$(date -u +%Y-%m-%d)" "$(nproc)" "$(java -version 2>&1 | head -n 1)" \
	"$(df --output=source "$dir" | tail -n 1)" "$(df --output=fstype "$dir" | tail -n 1)"
awk -F '\t' '
	!($2 in seen) { seen[$2]; order[n++] = $2 }
	{ value[$2, $3] = $4 " (" $5 " s)" }
	END {
		print "| measured (processor time) | bb:// | file:// | hdfs:// |"
		print "|---|---|---|---|"
		for (i = 0; i < n; i++) {
			printf "| %s ", order[i]
			for (s = 1; s <= split("bb file hdfs", stores, " "); s++)
				printf "| %s ", ((order[i], stores[s]) in value) ? value[order[i], stores[s]] : "not measured"
			print "|"
		}
	}' "$dir/rows"
exit $failed
