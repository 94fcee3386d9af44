#!/bin/bash
# The tests in a virtual machine alone: ublk on Debian's kernel 6.12, beside the kernel's own caches, and fences on LIO.
# `make test-vm` runs this; `make test` runs the same tests among all others. The last line is `N passed, N failed, N skipped`.
#
#   LOLIGO_LONG=1   20 kills, 8 power cuts, five rounds of the four caches and of ublk's overhead (40 minutes or so); 20 kills of
#                   loligod under an OSD, three boots of a Debian with the packaged units, and an OSD that is taken over on
#                   LIO's reservations, with and without the fence (as root; 50 minutes more); fences on nvmet too, with the kernel of Debian sid (125 MB, fetched once)
#
# Nothing is installed of the kernel, nor of that Debian: their packages are fetched and unpacked below the target directory, once.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/need.sh

need_build
need qemu-system-x86 qemu-utils busybox-static fio e2fsprogs dmsetup xz-utils fuse3 mmdebstrap ||
    say "Going on without: some tests will be skipped."
dir=$(target_dir)
mkdir -p "$dir"
log=$dir/test-vm.log
LOLIGO_BIN=$(realpath "$dir")/release/loligo
export LOLIGO_BIN
cargo build --release -p loligo || exit 1
cargo test -p loligo-tests --test vm -- --nocapture --test-threads=1 </dev/null 2>&1 | tee "$log"
case ${PIPESTATUS[0]} in 0 | 101) ;; *) echo "FAILED STEP: tests" | tee -a "$log" ;; esac
say "The whole output is in $log"
awk -f scripts/tally.awk "$log"
