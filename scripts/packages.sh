#!/usr/bin/env bash
# Makes the deb and rpm packages and the image archive of static binaries, in DIST. VERSION is
# that of packages (package-version.sh). The same commit gives the same bytes.
#
#	packages.sh BIN DIST VERSION [FORMAT...]	(deb rpm oci)
#
# PACKAGE_FAST=1 compresses deb and rpm hardly at all: for tests.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath "$1") version=$3
mkdir -p "$2"
dist=$(realpath "$2")
shift 3
[ $# -gt 0 ] || set -- deb rpm oci

# The image's certificates are those of the machine that builds it.
certificates=
for file in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem; do
	[ -f "$file" ] && certificates=$file && break
done
[ -n "$certificates" ] || { echo "the image needs certificate authorities: install ca-certificates" >&2; exit 1; }

tools=$PWD/.cache/bin
mkdir -p "$tools"
go build -C tools -o "$tools/" github.com/goreleaser/nfpm/v2/cmd/nfpm ./ociimage

PACKAGE_VERSION=$version GOARCH=$(go env GOARCH) SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 0)
export PACKAGE_VERSION GOARCH SOURCE_DATE_EPOCH

stage=$(mktemp -d "$dist/.stage.XXXXXX")
trap 'rm -rf "$stage"' EXIT
cp "$bin/bbd" "$bin/bbctl" "$bin/bbmount" "$stage"
cp packaging/bbd.yaml packaging/postinst packaging/prerm packaging/postrm docs/alerts.yaml docs/grafana.json LICENSE "$stage"
for unit in forebay-bbd.service forebay-mount@.service; do
	sed '1,/^$/d; s|/usr/local/bin/|/usr/bin/|' "docs/$unit" >"$stage/$unit"
done
"$bin/bbd" config defaults >"$stage/defaults.yaml"
"$bin/bbctl" man "$stage/man1" >/dev/null
gzip -9n "$stage"/man1/*
mkdir "$stage/completion"
for shell in bash fish zsh; do "$bin/bbctl" completion "$shell" >"$stage/completion/bbctl.$shell"; done

find "$stage" -exec touch -d "@$SOURCE_DATE_EPOCH" {} +

rm -f "$dist"/forebay[_-]*.{deb,rpm,oci.tar} # of older versions
config=$stage/nfpm.yaml
cp packaging/nfpm.yaml "$config"
[ -z "${PACKAGE_FAST:-}" ] || sed -i -e '$adeb: {compression: none}' -e 's/^rpm:$/&\n  compression: gzip:1/' "$config"
for format; do
	case $format in
	oci)
		"$tools/ociimage" -o "$dist/forebay-${version//+/-}-$GOARCH.oci.tar" -version "$version" -arch "$GOARCH" -created "$SOURCE_DATE_EPOCH" \
			-certificates "$certificates" -config packaging/bbd.yaml "$bin/bbd" "$bin/bbctl" "$bin/bbmount"
		;;
	*) (cd "$stage" && "$tools/nfpm" package -f "$config" -p "$format" -t "$dist/" >/dev/null) ;;
	esac
done
