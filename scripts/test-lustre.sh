#!/usr/bin/env bash
# Runs the tests of a store in FOREBAY_LUSTRE_DIR, a directory of this user on a site's Lustre. It leaves nothing
# there. Programs are built, and daemons keep their state, on the file systems of this node.
set -euo pipefail

site=${FOREBAY_LUSTRE_DIR:?set it to a directory of yours on Lustre, such as /lustre/scratch/me}
site=$(cd -- "$site" && pwd) # tests run in the folders of their packages
kind=$(stat -f -c %T "$site")
client=$(lfs --version 2>/dev/null || echo 'no lfs here')
echo "$site is on $kind; $client"
[ "$kind" = lustre ] || echo "note: these results do not apply to Lustre." >&2

tmp=$(mktemp -d "$site/forebay-suites-XXXXXX")
chmod 755 "$tmp"
trap 'rm -rf "$tmp"' EXIT
export FOREBAY_LUSTRE_DIR=$site GOTMPDIR="${TMPDIR:-/tmp}"

# Temporary directories of these are the stores.
TMPDIR=$tmp $TESTRUN -allow .ci/allowed-skips -- -count 1 -timeout 30m \
	-run '^(TestSuite|TestReplaced.*|TestGroup.*|TestKilledInAGroup)$' ./flusher/backing/posix ./flusher/backing/asuser
# A daemon's state stays here, its store is there.
$TESTRUN -allow .ci/allowed-skips -- -count 1 -timeout 30m -run '^TestStoreOfASite$' ./cmd/bbd
