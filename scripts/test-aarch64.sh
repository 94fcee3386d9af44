#!/bin/bash
# Loligo for aarch64: builds the program and shows that it starts, then runs the tests of block, cache (with its formats) and sim under
# qemu-user. `make test-aarch64` runs it. With no standard library, compiler, OpenSSL or emulator for aarch64 it says so and is
# skipped. With `short` as its argument it is a step of scripts/test.sh, which counts: the tests alone, since the program has ten times
# as much to compile.
#
#   LOLIGO_LONG=1         boots Debian's kernel with pages of 16 KiB under qemu-system-aarch64, too, and serves volumes and an OSD there
#                         (a Debian 13 for aarch64 with Ceph, 250 MB, is unpacked below the target directory, once)
#   LOLIGO_SEEDS=2000     seeds of the simulation (40 without it)
#   AARCH64_MINUTES=60    the most that the tests may take once compiled (20 without it)
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/need.sh

target=aarch64-unknown-linux-gnu
lacking() { echo "SKIPPED STEP: aarch64: $*" && exit 0; }

need_build
need gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user mmdebstrap ||
    lacking "apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user mmdebstrap"
[ -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ] || { command -v rustup >/dev/null && rustup target add "$target" >&2; } ||
    lacking "no standard library for it: rustup target add $target"
mkdir -p "$(target_dir)/roots"
root=$(realpath "$(target_dir)")/roots/arm64

# OpenSSL and the C library of this Debian for it: unpacked, and nothing of them is run to install them.
if [ ! -e "$root.done" ]; then
    release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    [ -n "$release" ] || lacking "which Debian this is cannot be told, so that its libssl-dev cannot be had"
    rm -rf "$root"
    mmdebstrap --quiet --variant=extract --architectures=arm64 --include=libssl-dev "$release" "$root" >&2 ||
        lacking "libssl-dev of $release cannot be had (the reason is above)"
    touch "$root.done"
fi
export PKG_CONFIG_ALLOW_CROSS=1 PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_LIBDIR=$root/usr/lib/aarch64-linux-gnu/pkgconfig
# What OpenSSL's headers say of one kind of machine lies in a folder of its own.
export CFLAGS_aarch64_unknown_linux_gnu=-I$root/usr/include/aarch64-linux-gnu
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L $root"
# A test of any mixture that is refused a ring has found nothing.
export PROPTEST_DISABLE_FAILURE_PERSISTENCE=1
export LOLIGO_SEEDS=${LOLIGO_SEEDS:-40}
lock=()
[ -z "${CI:-}" ] || lock=(--locked)

if [ "${1:-}" = short ]; then
    echo "SKIPPED STEP: aarch64: the program itself: make test-aarch64"
else
    # The profile of tests, so that what both need is compiled once.
    cargo build "${lock[@]}" --profile test --target "$target" -p loligo || echo "FAILED STEP: build for aarch64"
    program=$(realpath "$(target_dir)")/$target/debug/loligo
    qemu-aarch64 -L "$root" "$program" --version || echo "FAILED STEP: loligo --version on aarch64"
    if [ "${LOLIGO_LONG:-}" = 1 ]; then
        need qemu-system-arm qemu-utils e2fsprogs xz-utils || say "Going on without: pages of 16 KiB will be skipped."
        # The tests run here, by the libraries of this machine.
        LOLIGO_AARCH64_BIN=$program env -u PKG_CONFIG_ALLOW_CROSS -u PKG_CONFIG_SYSROOT_DIR -u PKG_CONFIG_LIBDIR \
            cargo test "${lock[@]}" -p loligo-tests --test vm arm:: -- --nocapture
        case $? in 0 | 101) ;; *) echo "FAILED STEP: pages of 16 KiB on aarch64" ;; esac
    else
        echo "SKIPPED STEP: aarch64: pages of 16 KiB: LOLIGO_LONG=1 make test-aarch64"
    fi
fi

# Not among them: `clock` and the simulations other than of crashes, which take many minutes here and ask nothing of a processor that
# these do not.
programs=(--lib)
for name in devices by_hand engine marks pool crash; do programs+=(--test "$name"); done
# qemu-user hides from files whether they take direct I/O, and no test program can start itself again under it.
without=(
    file_device::forced_pages_of_64_kib_are_honoured_and_all_claims_hold
    locking::a_second_opener_is_refused_by_name_until_the_first_is_killed
    locking::what_cannot_be_a_device_is_refused_with_the_reason
    write_back::a_buffered_device_is_flushed_whatever_cache_it_has
    write_back::off_its_blocks_a_device_without_cache_is_written_through
)
skips=()
for name in "${without[@]}"; do
    skips+=(--skip "$name")
    echo "SKIPPED STEP: aarch64: $name: qemu-user hides direct I/O and restarts no program"
done
tests=("${lock[@]}" --target "$target" -p loligo-block -p loligo-engine -p loligo-sim "${programs[@]}")
cargo test "${tests[@]}" --no-run || { echo "FAILED STEP: compile tests for aarch64" && exit 0; }
timeout --kill-after=30 "${AARCH64_MINUTES:-20}m" \
    cargo test "${tests[@]}" --no-fail-fast -- --show-output "${skips[@]}" 2>&1 | awk -f scripts/ringless.awk
case ${PIPESTATUS[0]} in 0 | 101) ;; *) echo "FAILED STEP: tests on aarch64" ;; esac
exit 0
