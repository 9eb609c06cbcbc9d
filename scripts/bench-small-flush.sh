#!/usr/bin/env bash
# Measures the flush of many small files, beside cp -r and one sync -f of the same files, on ext4 with a journal and XFS
# on loop devices and on tmpfs, written by the daemon and by a store worker. Needs root, e2fsprogs, xfsprogs, util-linux.
#
#	scripts/bench-small-flush.sh BIN [BEFORE]
#
# BIN, and BEFORE, are folders with bbd and bbctl. Their rounds take turns. FILES=5000, ROUNDS=5, STORES="ext4
# xfs tmpfs", TMPDIR=/dev/shm hold the default values. Each figure is seconds from the command that lets the
# flush begin until bbctl drain has returned: files are put under a name that is kept from the store, and
# renamed. It is printed as soon as it is measured, with the processor time of the daemon and its workers: a
# put of the files takes many times as long as their flush, so that all rounds take FILES x ROUNDS x 2 x
# builds x stores / 300 s or so on a busy machine.
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "loop devices, and the flush as a user, need root" >&2; exit 1; }
builds=("$@")
[ $# -ge 1 ] || { sed -n '5,5p' "$0" | cut -c3- >&2; exit 2; }
files=${FILES:-5000} rounds=${ROUNDS:-5} uid=50001
dir=$(mktemp -d "${TMPDIR:-/dev/shm}/forebay-small-XXXXXX")
chmod 755 "$dir"
daemon=
# shellcheck disable=SC2329 # the trap calls it
cleanup() {
	status=$?
	if [ -n "$daemon" ]; then
		kill "$daemon" 2>/dev/null || true
		wait "$daemon" 2>/dev/null || true
	fi
	for mnt in "$dir"/mnt-*; do
		if mountpoint -q "$mnt"; then umount "$mnt" || umount -l "$mnt"; fi
	done
	[ "$status" = 0 ] || tail -n 20 "$dir"/log 2>/dev/null || true
	rm -rf "$dir"
}
trap cleanup EXIT

mkdir "$dir/files"
head -c $((files * 4096)) /dev/urandom | split -b 4096 -a 5 - "$dir/files/f"
chmod -R a+rX "$dir/files"

store() { # makes and mounts one kind of file system
	mnt=$dir/mnt-$1
	mkdir "$mnt"
	case $1 in
	tmpfs) mount -t tmpfs none "$mnt" ;;
	*)
		truncate -s 2G "$dir/$1.img"
		"mkfs.$1" -q "$dir/$1.img"
		mount -o loop "$dir/$1.img" "$mnt"
		;;
	esac
}

now() { date +%s.%N; }
took() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.2f", b - a }'; }

cpu() { # prints the processor time of the daemon and its workers up to now, in hundredths of a second
	local pid total=0
	for pid in "$daemon" $(pgrep -P "$daemon" || true); do
		total=$((total + $(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null | awk '{ print $12 + $13 + $14 + $15 }' || echo 0)))
	done
	echo "$total"
}

flush() { # a build, the writer, the store's name: prints the seconds, and the µs of processor time of a file
	local bin=$1 as=$2 at=$dir/mnt-$3/$RANDOM$RANDOM began before seconds used
	local -a run=()
	mkdir -p "$at"
	rm -rf "$dir/d"
	mkdir -m 755 "$dir/d" "$dir/d/m"
	cat >"$dir/d/c.yaml" <<CONFIG
name: bench
state_dir: $dir/d/state
listen: {socket: $dir/d/s, tcp: "", admin: ""}
memory: {size: 512MiB, region_size: 64MiB, mount: "off", dir: $dir/d/m}
CONFIG
	if [ "$as" = worker ]; then
		chown "$uid:$uid" "$at"
		run=(setpriv "--reuid=$uid" "--regid=$uid" --clear-groups)
	fi
	"$bin/bbd" --config "$dir/d/c.yaml" >"$dir/log" 2>&1 &
	daemon=$!
	ctl() { "${run[@]}" "$bin/bbctl" --socket "$dir/d/s" "$@" >>"$dir/log" 2>&1; }
	until ctl ls bb://; do
		kill -0 "$daemon"
		sleep 0.1
	done
	ctl buffer create b --backing "file://$at" --keep kept/
	ctl put -r "$dir/files" bb://b/kept
	before=$(cpu)
	began=$(now)
	ctl mv bb://b/kept bb://b/out
	ctl drain b
	seconds=$(took "$began")
	used=$((($(cpu) - before) * 10000 / files))
	echo "$3, $as, $bin, round $((r + 1)): $seconds s, $used µs of processor time a file, load $(cut -d' ' -f1 /proc/loadavg)" >&2
	echo "$seconds $used"
	[ "$(find "$at" -type f | wc -l)" = "$files" ] || { echo "files are missing in $at" >&2; return 1; }
	kill "$daemon"
	wait "$daemon" || true
	daemon=
	rm -rf "$at"
}

copy() { # the store's name: prints the seconds of the limit
	local at=$dir/mnt-$1/copy began
	began=$(now)
	cp -r "$dir/files" "$at"
	sync -f "$at"
	took "$began"
	rm -rf "$at"
}

median() { # a format, values
	tr ' ' '\n' <<<"$2" | sort -n | awk -v f="$1" 'NF { v[++n] = $1 } END { printf f " (" f " to " f ")", v[int((n + 1) / 2)], v[1], v[n] }'
}

echo "$files files of 4 KiB, $rounds rounds in turns, $(nproc) processors, Linux $(uname -r), loads $(cut -d' ' -f1-3 /proc/loadavg) at the start"
for kind in ${STORES:-ext4 xfs tmpfs}; do
	store "$kind"
	declare -A times=() work=()
	for ((r = 0; r < rounds; r++)); do
		times[limit]+=" $(copy "$kind")"
		for as in daemon worker; do
			for i in "${!builds[@]}"; do
				one=$(flush "${builds[$i]}" "$as" "$kind")
				times[$as$i]+=" ${one% *}" work[$as$i]+=" ${one#* }"
			done
		done
	done
	limit=$(median %.2f "${times[limit]}")
	for as in daemon worker; do
		for i in "${!builds[@]}"; do
			own=$(median %.2f "${times[$as$i]}")
			ratio=$(awk -v a="${own%% *}" -v b="${limit%% *}" 'BEGIN { printf "%.1f", a / b }')
			echo "$kind, $as, ${builds[$i]}: $own s; cp -r and sync -f: $limit s; ratio $ratio; $(median %d "${work[$as$i]}") µs of processor time a file"
		done
	done
	unset times work
	umount "$dir/mnt-$kind"
done
echo "loads $(cut -d' ' -f1-3 /proc/loadavg) at the end"
