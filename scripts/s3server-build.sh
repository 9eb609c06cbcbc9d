#!/bin/sh
# Builds the S3 server that the tests talk to, once, into .cache/ at the root of
# the repository, and prints where it is. The version and the checksums of all
# that is compiled into it are pinned in scripts/s3server/go.mod and go.sum.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
package=github.com/versity/versitygw
version=$(sed -n "s|^[[:space:]]*$package \(v[^ ]*\).*|\1|p" "$root/scripts/s3server/go.mod")
if [ -z "$version" ]; then
	echo "s3server: scripts/s3server/go.mod pins no version of $package" >&2
	exit 1
fi

server=$root/.cache/s3server/versitygw-$version
if [ ! -x "$server" ]; then
	echo "s3server: building $package $version, about a minute" >&2
	mkdir -p "$root/.cache/s3server"
	# Built under another name first, so that a build that is interrupted leaves nothing that looks whole.
	building=$server.$$
	trap 'rm -f "$building"' EXIT
	if ! (cd "$root/scripts/s3server" && GOFLAGS=-mod=readonly GOWORK=off CGO_ENABLED=0 \
		go build -trimpath -ldflags='-s -w' -o "$building" "$package/cmd/versitygw") >&2; then
		echo "s3server: cannot build $package $version." >&2
		echo "s3server: it needs Go and, the first time, a Go module proxy (go env GOPROXY) that can be reached" >&2
		exit 1
	fi
	mv "$building" "$server"
fi
echo "$server"
