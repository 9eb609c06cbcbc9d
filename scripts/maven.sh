#!/usr/bin/env bash
# Runs Maven in sdk/java, for logs. With -B alone it still prints codes that reset colours, which then stand
# before the next output.
set -euo pipefail
cd "$(dirname "$0")/../sdk/java"
mvn -B -ntp "$@" 2>&1 | sed -u 's/\x1b\[[0-9;]*m//g'
