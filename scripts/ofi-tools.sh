#!/usr/bin/env bash
# Makes sure of what building and testing with libfabric needs (rdma/ofi): its headers and
# library, 1.17 or later, and a C compiler. Installs them where that is allowed. Exits 0 when
# they are there; else says what is missing, and exits 1.
set -euo pipefail

have() {
	command -v "${CC:-gcc}" >/dev/null &&
		printf '#include <rdma/fabric.h>\n#if FI_MAJOR_VERSION * 1000 + FI_MINOR_VERSION < 1017\n#error too old\n#endif\n' |
		"${CC:-gcc}" -fsyntax-only -x c - 2>/dev/null
}
have && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	export DEBIAN_FRONTEND=noninteractive
	packages=(libfabric-dev gcc libc6-dev)
	apt-get install -o DPkg::Lock::Timeout=600 -qq -y --no-install-recommends "${packages[@]}" >/dev/null || {
		apt-get update -qq >/dev/null
		apt-get install -o DPkg::Lock::Timeout=600 -qq -y --no-install-recommends "${packages[@]}" >/dev/null
	}
fi
have && exit 0
echo "libfabric 1.17 or later, or a C compiler, is missing: install libfabric-dev and gcc." >&2
exit 1
