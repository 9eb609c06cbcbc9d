#!/usr/bin/env bash
# The tests over verbs, without RDMA hardware: boots Debian's own kernel under qemu, makes a
# Soft-RoCE device (rdma_rxe) of the guest's network card, and runs there the conformance suite of
# rdma/ofi over verbs, and daemons that exchange files. Needs no rights but to install packages.
# It proves correctness, not speed, since the guest is emulated.
#
#	scripts/rxe.sh
#
# The kernel and its modules are unpacked, not installed, below .cache/guest, and kept.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/guest.sh
cache=$PWD/.cache/rxe
mkdir -p "$cache"

guest_install rdma:iproute2 ibv_devinfo:ibverbs-utils /etc/libibverbs.d/rxe.driver:ibverbs-providers
scripts/ofi-tools.sh

# The first file system: busybox, the modules that are needed, and the init that hands over to the host's
# file system.
initramfs() {
	# crc32_generic: without it, the device cannot be made.
	guest_root "$cache/initramfs" crc32_generic crc32c_generic virtio_pci virtio_net 9pnet_virtio 9p ib_uverbs rdma_ucm rdma_rxe <<'INIT'
/bin/busybox mkdir /host
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose host /host || echo "no root"
for fs in proc sys dev; do
	/bin/busybox mount -o bind /$fs /host/$fs
done
for dir in /tmp /run /dev/shm; do
	/bin/busybox mkdir -p /host$dir 2>/dev/null
	/bin/busybox mount -t tmpfs tmpfs /host$dir
done
/bin/busybox mkdir /host/run/tests
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose tests /host/run/tests || echo "no tests"
/bin/busybox chroot /host /bin/sh /run/tests/rxe-guest.sh /run/tests
echo "guest: exit $?"
/bin/busybox sync
/bin/busybox poweroff -f
INIT
	guest_pack "$cache/initramfs" "$cache/initramfs.gz"
}

build() {
	mkdir -p "$cache/bin"
	cp scripts/rxe-guest.sh scripts/two-daemons.sh "$cache/bin/"
	export CGO_ENABLED=1
	go build -tags netgo,osusergo,ofi -o "$cache/bin/bbd-ofi" ./cmd/bbd
	go build -tags netgo,osusergo,ofi -o "$cache/bin/bbctl-ofi" ./cmd/bbctl
	go test -tags netgo,osusergo,ofi,verbs -c -o "$cache/bin/ofi.test" ./rdma/ofi
	go test -tags netgo,osusergo,ofi,verbs -c -o "$cache/bin/bbd.test" ./bbd
}

guest_kernel
initramfs
build

log=$cache/guest.log
timeout -k 10 900 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 3072 \
	-kernel "$(guest_image)" -initrd "$cache/initramfs.gz" \
	-append 'console=ttyS0 quiet panic=-1' -nographic -no-reboot -monitor none -serial stdio \
	-fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap \
	-device virtio-9p-pci,fsdev=host,mount_tag=host \
	-fsdev local,id=tests,path="$cache/bin",security_model=none,readonly=on \
	-device virtio-9p-pci,fsdev=tests,mount_tag=tests \
	-netdev user,id=net -device virtio-net-pci,netdev=net </dev/null 2>&1 | sed -u 's|\r||g' | tee "$log" |
	grep --line-buffered -E '^ *--- |packets over|two daemons|guest: exit|verbs' || true
if ! grep -q '^guest: exit 0$' "$log"; then
	tail -80 "$log" >&2
	echo "the tests over verbs failed: $log" >&2
	exit 1
fi
