#!/usr/bin/env bash
# Checks the tools for building and testing with libfabric (rdma/ofi): its headers and
# library, 1.17 or later, and a C compiler. Installs them where that is allowed. Exits 0 when they are there,
# else prints the missing ones, and exits 1.
set -euo pipefail

have() {
	command -v "${CC:-gcc}" >/dev/null &&
		printf '#include <rdma/fabric.h>\n#if FI_MAJOR_VERSION * 1000 + FI_MINOR_VERSION < 1017\n#error too old\n#endif\n' |
		"${CC:-gcc}" -fsyntax-only -x c - 2>/dev/null
}
have && exit 0

"$(dirname "$0")"/apt-install.sh libfabric-dev gcc libc6-dev || true
have && exit 0
echo "libfabric 1.17 or later, or a C compiler, is missing: install libfabric-dev and gcc." >&2
exit 1
