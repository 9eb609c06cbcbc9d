#!/bin/sh
# Runs inside the guest that scripts/rxe.sh boots, in the host's file system, which is read-only
# but for /tmp, /run and /dev/shm: makes a Soft-RoCE device of the network card, and runs the tests
# over it. $1 is the folder with the test binaries.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp
ulimit -l unlimited

ip link set lo up
ip address add 10.0.2.15/24 dev eth0
ip link set eth0 up
rdma link add rxe0 type rxe netdev eth0
i=0
until ibv_devinfo -d rxe0 2>/dev/null | grep -q PORT_ACTIVE; do
	i=$((i + 1))
	[ "$i" -lt 100 ] || { ibv_devinfo -d rxe0; exit 1; }
	sleep 0.1
done

# sent prints how many packets the device has sent.
sent() {
	cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts
}

# over TEST-BINARY PACKETS ARGUMENTS… fails if the tests do, or sent fewer packets than that over
# the device.
over() {
	binary=$1 least=$2
	shift 2
	before=$(sent)
	(cd /tmp && timeout 420 "$binary" -test.timeout 400s -test.v "$@")
	packets=$(($(sent) - before))
	echo "$(basename "$binary"): $packets packets over rxe0"
	[ "$packets" -ge "$least" ]
}

"$1/bbd-ofi" fabric list | grep -E 'PROVIDER|verbs' || true
# Two daemons and a client exchange files of some 30 MB in all, a packet carrying 1024 bytes at most.
over "$1/bbd.test" 10000 -test.run 'TestClusterOverLibfabric|TestClusterReadElsewhere'

# A daemon and its clients in processes of their own: what comes back over verbs is what was put.
processes() {
	cd /tmp
	umask 077
	head -c 32 /dev/urandom | base64 >key
	export FOREBAY_KEY_FILE=/tmp/key
	"$1/bbd-ofi" --dev --dir /tmp/dev --memory 128MiB --key-file /tmp/key --listen-tcp 10.0.2.15:7481 \
		--fabric-ofi on --fabric-provider verbs >/tmp/bbd.log 2>&1 &
	daemon=$!
	i=0
	until [ -S /tmp/dev/bbd.sock ]; do
		i=$((i + 1))
		[ "$i" -lt 300 ] || return 1
		sleep 0.1
	done
	"$1/bbctl-ofi" --socket /tmp/dev/bbd.sock buffer create demo
	head -c 20000000 /dev/urandom >put
	before=$(sent)
	"$1/bbctl-ofi" --socket tcp://10.0.2.15:7481 put put bb://demo/file
	"$1/bbctl-ofi" --socket tcp://10.0.2.15:7481 get bb://demo/file got
	cmp put got
	packets=$(($(sent) - before))
	echo "processes: 2 x 20 MB, $packets packets over rxe0"
	kill "$daemon"
	wait "$daemon" || true
	[ "$packets" -ge 30000 ]
}
processes "$1" || { cat /tmp/bbd.log; exit 1; }
over "$1/ofi.test" 10000 -test.run 'TestConformanceVerbs|TestVerbs'
