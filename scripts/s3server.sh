#!/usr/bin/env bash
# Runs the S3 server of the tests, for trying Forebay in front of S3: s3server.sh [ADDRESS [DIR]].
# It has one bucket, named bucket, whose objects are files in DIR/bucket.
set -euo pipefail
cd "$(dirname "$0")/.."

address=${1:-127.0.0.1:7070}
dir=${2:-${TMPDIR:-/tmp}/forebay-s3-$(id -u)}
key=forebay secret=forebay-secret

server=$(scripts/s3server-build.sh)
mkdir -p "$dir/bucket"
echo "An S3 server for trying, at http://$address, until ctrl-C. Its objects are in $dir/bucket."
echo "  export AWS_ACCESS_KEY_ID=$key AWS_SECRET_ACCESS_KEY=$secret      # where bbd runs"
exec "$server" --port "$address" --access "$key" --secret "$secret" --region us-east-1 --quiet posix "$dir"
