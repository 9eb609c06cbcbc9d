# For scripts that boot an emulated machine: installs its tools, unpacks the distribution's
# kernel below .cache/guest, which is kept, and packs the guest's first file system. To be sourced
# from the top folder.
guest_cache=$PWD/.cache/guest
mkdir -p "$guest_cache"

# guest_install COMMAND:PACKAGE… installs the packages whose commands, or files, are missing.
guest_install() {
	local n packages=()
	for n in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio modprobe:kmod "$@"; do
		[ -e "${n%%:*}" ] || command -v "${n%%:*}" >/dev/null || packages+=("${n##*:}")
	done
	[ ${#packages[@]} -gt 0 ] || return 0
	scripts/apt-install.sh "${packages[@]}" || {
		echo "missing: install ${packages[*]}" >&2
		exit 1
	}
}

# guest_kernel unpacks the newest kernel of the distribution.
guest_kernel() {
	[ -e "$guest_cache/version" ] && return
	local package
	package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/ { print $2; exit }')
	if [ -z "$package" ]; then
		apt-get update -qq >/dev/null
		package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/ { print $2; exit }')
	fi
	rm -rf "$guest_cache/download" "$guest_cache/kernel"
	mkdir -p "$guest_cache/download"
	(cd "$guest_cache/download" && apt-get download -qq -o APT::Sandbox::User=root "$package")
	dpkg -x "$guest_cache"/download/*.deb "$guest_cache/kernel"
	depmod -b "$guest_cache/kernel" "${package#linux-image-}"
	rm -rf "$guest_cache/download"
	echo "${package#linux-image-}" >"$guest_cache/version"
}

# guest_image prints the kernel's file.
guest_image() {
	echo "$guest_cache/kernel/boot/vmlinuz-$(cat "$guest_cache/version")"
}

# guest_root DIR MODULE… makes a folder of a first file system: busybox, modules with those that
# they need, and an init that loads them and then runs the commands of standard input.
guest_root() {
	local dir=$1 version m rest
	rest=$(cat)
	shift
	version=$(cat "$guest_cache/version")
	rm -rf "$dir"
	mkdir -p "$dir"/{bin,proc,sys,dev,modules}
	cp "$(command -v busybox)" "$dir/bin/busybox"
	for m in "$@"; do
		modprobe -d "$guest_cache/kernel" -S "$version" --show-depends "$m" | awk '$1 == "insmod" { print $2 }'
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
$rest
INIT
	chmod +x "$dir/init"
}

# guest_pack DIR FILE packs the folder, and removes it.
guest_pack() {
	(cd "$1" && find . | cpio -o -H newc --quiet | gzip -1) >"$2"
	rm -rf "$1"
}
