#!/bin/sh
# Two daemons and a client, each a process of its own: files put through one daemon and got
# through the other, compared. For scripts/rxe-guest.sh, which counts the packets. By itself, over libfabric's
# provider in software:
#
#	scripts/two-daemons.sh bin tcp 127.0.0.1 127.0.0.1 127.0.0.2
#
# The arguments are the folder of bbd-ofi and bbctl-ofi, libfabric's provider and address, and an
# address for each daemon.
set -eu
bin=$1 provider=$2 fabric=$3 address1=$4 address2=$5

dir=$(mktemp -d)
daemons=
# shellcheck disable=SC2329 # the trap calls it
stop() {
	status=$?
	for pid in $daemons; do
		kill "$pid" 2>/dev/null || true
		wait "$pid" || true
	done
	if [ "$status" != 0 ]; then
		tail -n 40 "$dir"/n*.log
	fi
	rm -rf "$dir"
}
trap stop EXIT

umask 077
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$dir/key"
for n in 1 2; do
	eval "address=\$address$n"
	mkdir "$dir/n$n" "$dir/m$n"
	cat >"$dir/n$n.yaml" <<CONFIG
name: n$n
key_file: $dir/key
state_dir: $dir/n$n
listen: {socket: $dir/n$n.sock, tcp: "$address:7101", admin: ""}
cluster: {listen: "$address:7103", join: "$address1:7103", advertise: $address}
nats: {servers: "$address1:7104"}
memory: {size: 128MiB, region_size: 64MiB, mount: "off", dir: $dir/m$n}
fabric: {ofi: "on", provider: $provider, address: $fabric}
CONFIG
	"$bin/bbd-ofi" --config "$dir/n$n.yaml" >"$dir/n$n.log" 2>&1 &
	daemons="$daemons $!"
done

export FOREBAY_KEY_FILE="$dir/key"
via() { # a daemon, and the arguments of bbctl
	n=$1
	shift
	eval "address=\$address$n"
	"$bin/bbctl-ofi" --socket "tcp://$address:7101" "$@"
}
tries=0
until via 2 nodes >"$dir/nodes" 2>&1 && [ "$(grep -c " ready " "$dir/nodes")" = 2 ]; do
	tries=$((tries + 1))
	[ "$tries" -lt 240 ] || { cat "$dir/nodes"; exit 1; }
	sleep 0.25
done

head -c 20000000 /dev/urandom >"$dir/put"
via 1 buffer create shared
for from in 1 2; do
	to=$((3 - from))
	via $from put "$dir/put" "bb://shared/f$from" 2>"$dir/progress"
	via $to get "bb://shared/f$from" "$dir/got$from" 2>"$dir/progress"
	cmp "$dir/put" "$dir/got$from"
	echo "two daemons: 20 MB put through n$from are read unchanged through n$to"
done
# The path of the daemons' sessions with each other, since the client's session has ended.
for n in 1 2; do
	via $n status --json >"$dir/status"
	grep -q "\"path\": *\"ofi/$provider\"" "$dir/status" || { echo "no session of n$n goes over ofi/$provider"; cat "$dir/status"; exit 1; }
done
