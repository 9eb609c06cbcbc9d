#!/usr/bin/env bash
# The tests that cut the power of a whole machine: boots Debian's own kernel under qemu, with one
# daemon whose namespace, disk tier and store are on an ext4 file system, kills qemu while clients
# work, and judges the files after the next boot (cmd/bbd/machine_power_test.go). Needs no rights
# but to install packages.
#
#	scripts/power.sh [arguments of go test]
#
# FOREBAY_SEED repeats a run, FOREBAY_KILLS is the number of power cuts.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/guest.sh
cache=$PWD/.cache/power
mkdir -p "$cache"
export PATH=$PATH:/usr/sbin:/sbin

guest_install mkfs.ext4:e2fsprogs
guest_kernel
guest_root "$cache/initramfs" crc32c_generic virtio_pci virtio_net virtio_blk ext4 <<'INIT'
cd /bin
/bin/busybox --install -s /bin
ip link set lo up
ip address add 10.0.2.15/24 dev eth0
ip link set eth0 up
mkdir -p /dev/shm /disk
mount -t tmpfs tmpfs /dev/shm
mkdir -m 700 /dev/shm/bbd
# Without auto_da_alloc, ext4 does not write the bytes of a file that replaces another one before its name, so
# the daemon has to ensure it.
mount -t ext4 -o noauto_da_alloc /dev/vda /disk || poweroff -f
mkdir -p /disk/state /disk/tier /disk/store/crash /disk/store/flushed
sync
# The store is sent as it is found, once, before the daemon starts, and then at each request.
nc -l -p 7000 -e /store
nc -ll -p 7000 -e /store &
/bbd --config /bbd.yaml
echo "guest: bbd ended with $?"
poweroff -f
INIT
cat >"$cache/initramfs/store" <<'STORE'
#!/bin/sh
tar -c -C /disk/store . && echo complete
STORE
chmod +x "$cache/initramfs/store"
# It needs no secret, since only this machine reaches the guest.
cat >"$cache/initramfs/bbd.yaml" <<'CONFIG'
name: power
state_dir: /disk/state
insecure: true
memory: {dir: /dev/shm/bbd, mount: "off", size: 128MiB, region_size: 64MiB}
disk: {dir: /disk/tier, size: 192MiB}
listen: {socket: /bbd.sock, tcp: "10.0.2.15:7481", fabric: "off", admin: "127.0.0.1:0"}
CONFIG
CGO_ENABLED=0 go build -ldflags '-s -w' -o "$cache/initramfs/bbd" ./cmd/bbd
guest_pack "$cache/initramfs" "$cache/initramfs.gz"

rm -f "$cache/disk.ext4"
truncate -s 768M "$cache/disk.ext4"
mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$cache/disk.ext4"

FOREBAY_GUEST_KERNEL=$(guest_image) FOREBAY_GUEST=$cache \
	go test -tags netgo,osusergo,power -count 1 -v -timeout 20m -run TestPowerCutOfMachine "$@" ./cmd/bbd
