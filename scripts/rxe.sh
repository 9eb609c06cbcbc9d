#!/usr/bin/env bash
# The tests over verbs, without RDMA hardware: boots Debian's own kernel under qemu, makes a
# Soft-RoCE device (rdma_rxe) of the guest's network card, and runs there the conformance suite of
# rdma/ofi over verbs, and daemons that exchange files. Needs no rights but to install packages.
# It proves correctness, not speed: the guest is emulated.
#
#	scripts/rxe.sh
#
# The kernel and its modules are unpacked, not installed, below .cache/rxe, and kept.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$PWD/.cache/rxe
mkdir -p "$cache"

need=(qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio modprobe:kmod rdma:iproute2
	ibv_devinfo:ibverbs-utils)
packages=()
for n in "${need[@]}"; do
	command -v "${n%%:*}" >/dev/null || packages+=("${n##*:}")
done
[ -e /etc/libibverbs.d/rxe.driver ] || packages+=(ibverbs-providers)
if [ ${#packages[@]} -gt 0 ]; then
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "missing: install ${packages[*]}" >&2
		exit 1
	fi
	export DEBIAN_FRONTEND=noninteractive
	apt-get install -qq -y --no-install-recommends "${packages[@]}" >/dev/null || {
		apt-get update -qq >/dev/null
		apt-get install -qq -y --no-install-recommends "${packages[@]}" >/dev/null
	}
fi
scripts/ofi-tools.sh

# The newest kernel of the distribution.
kernel() {
	[ -e "$cache/version" ] && return
	local package
	package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/ { print $2; exit }')
	if [ -z "$package" ]; then
		apt-get update -qq >/dev/null
		package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/ { print $2; exit }')
	fi
	rm -rf "$cache/download" "$cache/kernel"
	mkdir -p "$cache/download"
	(cd "$cache/download" && apt-get download -qq -o APT::Sandbox::User=root "$package")
	dpkg -x "$cache"/download/*.deb "$cache/kernel"
	depmod -b "$cache/kernel" "${package#linux-image-}"
	rm -rf "$cache/download"
	echo "${package#linux-image-}" >"$cache/version"
}

# The first file system: busybox, the modules that are needed, and what hands over to the host's
# file system.
initramfs() {
	local version dir m
	version=$(cat "$cache/version")
	dir=$cache/initramfs
	rm -rf "$dir"
	mkdir -p "$dir"/{bin,proc,sys,dev,host,modules}
	cp "$(command -v busybox)" "$dir/bin/busybox"
	# crc32_generic: without it, the device cannot be made.
	for m in crc32_generic crc32c_generic virtio_pci virtio_net 9pnet_virtio 9p ib_uverbs rdma_ucm rdma_rxe; do
		modprobe -d "$cache/kernel" -S "$version" --show-depends "$m" | awk '$1 == "insmod" { print $2 }'
	done | awk '!seen[$0]++' >"$dir/modules/list"
	while read -r m; do
		cp "$m" "$dir/modules/"
	done <"$dir/modules/list"
	sed -i 's|.*/|/modules/|' "$dir/modules/list"
	cat >"$dir/init" <<INIT
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
while read -r m; do
	/bin/busybox insmod "\$m" || echo "insmod \$m failed"
done </modules/list
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose host /host || echo "no root"
for fs in proc sys dev; do
	/bin/busybox mount -o bind /\$fs /host/\$fs
done
for dir in /tmp /run /dev/shm; do
	/bin/busybox mkdir -p /host\$dir 2>/dev/null
	/bin/busybox mount -t tmpfs tmpfs /host\$dir
done
/bin/busybox mkdir /host/run/tests
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose tests /host/run/tests || echo "no tests"
/bin/busybox chroot /host /bin/sh /run/tests/rxe-guest.sh /run/tests
echo "guest: exit \$?"
/bin/busybox sync
/bin/busybox poweroff -f
INIT
	chmod +x "$dir/init"
	(cd "$dir" && find . | cpio -o -H newc --quiet | gzip -1) >"$cache/initramfs.gz"
	rm -rf "$dir"
}

build() {
	mkdir -p "$cache/bin"
	cp scripts/rxe-guest.sh scripts/two-daemons.sh "$cache/bin/"
	export CGO_ENABLED=1
	go build -tags ofi -o "$cache/bin/bbd-ofi" ./cmd/bbd
	go build -tags ofi -o "$cache/bin/bbctl-ofi" ./cmd/bbctl
	go test -tags ofi,verbs -c -o "$cache/bin/ofi.test" ./rdma/ofi
	go test -tags ofi,verbs -c -o "$cache/bin/bbd.test" ./bbd
}

kernel
initramfs
build

log=$cache/guest.log
timeout -k 10 900 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 3072 \
	-kernel "$cache/kernel/boot/vmlinuz-$(cat "$cache/version")" -initrd "$cache/initramfs.gz" \
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
