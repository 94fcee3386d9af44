#!/bin/bash
# Every test of Loligo; what `make test` and `.ci/run` run. The last line is `N passed, N failed, N skipped`, and the
# exit status is 0 only where nothing failed. Works without a terminal, as root or with sudo, in a fresh clone.
#
# Longer forms, by environment:
#   FUZZ_S=60            seconds for every fuzzer (4 without it)
#   LOLIGO_SEEDS=100000  seeds of the simulation (2,000 without it); LOLIGO_SEED=N runs that one alone
#   LOLIGO_FRESH=n       the first of 200 seeds of the simulation that no run had before (drawn and printed without it; not with
#                        LOLIGO_SEED)
#   LOLIGO_LONG=1        the program of a release; 20 rounds of what is done to RBD images on a cluster and to a ublk device in a virtual
#                        machine, and there an OSD and a whole Debian (two hours or more; give TEST_MINUTES too)
#   LOLIGO_TRACES=DIR    folder with the published block traces, for the miss ratios (skipped without it)
#   TEST_MINUTES=120     the most that the tests may take once compiled (60 without it)
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/need.sh

need_build
# Clients and file systems that tests use. A test whose program is missing says SKIP and is counted as skipped.
need fio qemu-utils libnbd-bin nbdkit fuse3 chromium e2fsprogs ||
    say "Going on without: some tests will be skipped."
need qemu-system-x86 busybox-static dmsetup xz-utils mmdebstrap ||
    say "Going on without: tests in a virtual machine will be skipped."
need udev systemd python3 ||
    say "Going on without: tests of the packaged unit and udev rule, and of who may ask the daemon, will be skipped."
# A server that is installed listens from then on: not on a developer's machine.
[ -z "${CI:-}" ] || need openssh-server openssh-client ||
    say "Going on without: tests of other hosts over ssh will be skipped."
need ceph-mon ceph-mgr ceph-osd ceph-common librbd1 rbd-mirror iproute2 ||
    say "Going on without: tests on a real Ceph cluster will be skipped."
need gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user ||
    say "Going on without: what is for aarch64 will be skipped."
for part in rustfmt clippy; do
    cargo "${part/rustfmt/fmt}" --version >/dev/null 2>&1 || rustup component add "$part" >&2 ||
        die "Rust's $part is missing: rustup component add $part"
done

dir=$(target_dir)
mkdir -p "$dir"
log=$dir/test.log
: >"$log"
lock=()
if [ -n "${CI:-}" ]; then
    lock=(--locked)
    # A fresh clone is built once: what a next build would start from is 10 GB.
    export CARGO_INCREMENTAL=0
fi
# The program that tests drive from outside: by default the one that is built with them, whose checks a release has not. A release is
# seven minutes more to build.
shipped=debug
[ "${LOLIGO_LONG:-}" != 1 ] || shipped=release
LOLIGO_BIN=$(realpath "$dir")/$shipped/loligo
export LOLIGO_BIN

export FUZZ_S=${FUZZ_S:-4}
# Below 2^32, where wide seeds begin; beyond all fixed ones.
if [ -z "${LOLIGO_SEED:-}" ]; then
    : "${LOLIGO_FRESH:=$((1000000000 + (RANDOM << 15 | RANDOM)))}"
    export LOLIGO_FRESH
    echo "Fresh seeds of the simulation; again: LOLIGO_FRESH=$LOLIGO_FRESH cargo test -p loligo-sim --test fresh" |
        tee -a "$log"
fi

# step NAME COMMAND...: runs it, shows and logs what it says; a failure is counted and the rest still runs.
step() {
    local name=$1 began=$SECONDS
    shift
    printf '== %s\n' "$name" | tee -a "$log"
    "$@" </dev/null 2>&1 | tee -a "$log"
    local status=${PIPESTATUS[0]}
    if [ "$status" -ne 0 ]; then
        printf '== %s failed with status %s after %s s\n' "$name" "$status" $((SECONDS - began)) | tee -a "$log"
    else
        printf '== %s: %s s\n' "$name" $((SECONDS - began)) | tee -a "$log"
    fi
    return "$status"
}
counted() { step "$@" || printf 'FAILED STEP: %s\n' "$1" | tee -a "$log"; }

# A root of Debian 13 comes together while the processors compile.
scripts/test-releases.sh root >"$dir/root.log" 2>&1 </dev/null &
making=$!

counted format cargo fmt --all --check
counted clippy cargo clippy "${lock[@]}" --workspace --all-targets -- -D warnings
counted documentation env RUSTDOCFLAGS="-D warnings" cargo doc "${lock[@]}" --workspace --no-deps
[ $shipped = debug ] || counted "release build" cargo build "${lock[@]}" --release -p loligo
if step "compile tests" cargo test "${lock[@]}" --workspace --no-run; then
    step tests timeout --kill-after=30 "${TEST_MINUTES:-60}m" \
        cargo test "${lock[@]}" --workspace --no-fail-fast -- --show-output
    # 101 is cargo's own for failed tests, which are counted one by one; anything else ended the run early.
    case $? in 0 | 101) ;; *) echo "FAILED STEP: tests" | tee -a "$log" ;; esac
    wait "$making"
    counted "Ceph 18.2 of Debian 13" scripts/test-releases.sh short
else
    wait "$making"
    echo "FAILED STEP: compile tests" | tee -a "$log"
fi
form=(short)
[ "${LOLIGO_LONG:-}" != 1 ] || form=()
counted aarch64 scripts/test-aarch64.sh "${form[@]}"

say "The whole output is in $log"
grep -h '^SKIP' "$log" | sort | uniq -c >&2
awk -v first=25 -v last=15 -f scripts/failures.awk "$log"
awk -f scripts/tally.awk "$log"
