#!/bin/bash
# Installs what a build needs and is missing, then builds the `loligo` program. Any arguments are packages that are
# installed too.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/need.sh
need_build
if [ $# -gt 0 ]; then need "$@" || exit 1; fi
cargo build --release -p loligo
