#!/bin/sh
# Runs inside the guest that scripts/rxe.sh boots, in the host's file system, which is read-only
# but for /tmp, /run and /dev/shm: makes a Soft-RoCE device of the network card, and runs the tests
# over it. $1 is the folder with the test binaries.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp
ulimit -l unlimited

ip link set lo up
ip address add 10.0.2.15/24 dev eth0
ip address add 10.0.2.16/24 dev eth0
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

# Two daemons and a client in processes of their own: six times 20 MB, 1024 bytes in a packet.
before=$(sent)
timeout 300 "$1/two-daemons.sh" "$1" verbs 10.0.2.15 10.0.2.15 10.0.2.16
packets=$(($(sent) - before))
echo "two daemons: $packets packets over rxe0"
[ "$packets" -ge 110000 ]
over "$1/ofi.test" 10000 -test.run 'TestConformanceVerbs|TestVerbs'
