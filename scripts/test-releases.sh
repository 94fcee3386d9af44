#!/bin/bash
# The suites of RBD images, OSDs and the tuner on other releases of Ceph: 18.2 in a root of Debian 13, 20.2 in one of sid. The roots are
# made by mmdebstrap below the target directory, once; nothing on the host changes. Needs root. The last line is
# `N passed, N failed, N skipped`.
#
# With `short` as its argument it is a step of scripts/test.sh, which counts: on Debian 13 alone, some tests on images and, if they
# pass, one on an OSD. With `root` it makes the root for that and nothing else.
#
#   RELEASES="trixie"   only these (trixie sid without it)
#   SUITES="rbd"        only these (rbd osd tune tune_apply tune_keys tune_acts tune_mistakes without it)
#   FILTER=late         only tests with this in their name
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/need.sh

PACKAGES=ca-certificates,ceph-mon,ceph-mgr,ceph-osd,ceph-common,librbd1,rbd-mirror,iproute2,fio,qemu-utils,libnbd-bin,nbdkit,fuse3
PACKAGES+=,e2fsprogs,procps,udev,lvm2,kmod

# What the short form runs of each suite.
SHORT_RBD=(release:: layouts:: late::a_stop restart::a_killed snapshots::a_snapshot_by)
SHORT_OSD=(life::)

# What is missing here: the short form goes on without.
lacking() {
    case ${1:-} in
    short) echo "SKIPPED STEP: Ceph of Debian 13: $2" && exit 0 ;;
    root) exit 0 ;;
    *) die "$2" ;;
    esac
}

form=${1:-}
[ "$(id -u)" = 0 ] || lacking "$form" "roots are mounted and entered: run make test-releases as root"
need_build
need mmdebstrap util-linux || lacking "$form" "mmdebstrap is missing: apt-get install mmdebstrap"
mkdir -p "$(target_dir)"
dir=$(realpath "$(target_dir)")
here=$(pwd)
# The program that tests drive from outside. As a step it is that of the other steps.
program=$dir/release/loligo
[ "$form" != short ] || program=${LOLIGO_BIN:-$program}

# suite NAME OPTIONS...: the newest program of a suite, built with these options of cargo test.
suite() {
    cargo test "${@:2}" --no-run --message-format=json-render-diagnostics |
        sed -n "s/.*\"executable\":\"\([^\"]*\/$1-[0-9a-f]*\)\".*/\1/p" | tail -n 1
}

# root RELEASE FOLDER: makes the root where there is none with these packages.
root() {
    local release=$1 root=$2 options=()
    [ "$(cat "$root.packages" 2>/dev/null)" != "$PACKAGES" ] || return 0
    # The archive of sid may be a snapshot, whose lists have expired.
    [ "$release" != sid ] || options+=("--aptopt=Acquire::Check-Valid-Until \"false\"")
    say "Making a root of $release with Ceph (some 200 MB of packages) in $root"
    rm -rf "$root" "$root.packages"
    mmdebstrap --quiet --mode=root --variant=minbase --include "$PACKAGES" "${options[@]}" \
        --aptopt='Acquire::Languages "none"' --aptopt='APT::Install-Recommends "false"' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
        "$release" "$root" >&2 && echo "$PACKAGES" >"$root.packages"
}

# inside ROOT COMMAND...: runs it in the root, with this checkout and the target directory where they are here. The mounts are
# those of a namespace of its own. The root is mounted onto itself, because `ip netns exec` wants "/" to be a mount.
inside() {
    unshare --mount --propagation private bash -euc '
        root=$0 here=$1 target=$2 program=$3
        shift 3
        mount --bind "$root" "$root"
        mount --rbind /dev "$root/dev"
        mount --rbind /sys "$root/sys"
        mount -t proc proc "$root/proc"
        mount -t tmpfs tmpfs "$root/run"
        mount -t tmpfs tmpfs "$root/tmp"
        mkdir -p "$root$here" "$root$target"
        mount --bind "$here" "$root$here"
        mount --bind "$target" "$root$target"
        exec chroot "$root" env HOME=/root LOLIGO_BIN="$program" "$@"' "$1" "$here" "$dir" "$program" "${@:2}"
}

# run ROOT SUITE OPTIONS-OF-CARGO... -- FILTERS...: a suite in a root; the status of its program.
run() {
    local root=$1 name=$2 options=() tests
    shift 2
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    shift
    tests=$(suite "$name" "${options[@]}")
    [ -n "$tests" ] || { echo "FAILED STEP: compile $name" && return 1; }
    echo "== $name on $(basename "$root")"
    inside "$root" sh -c 'cd "$0" && exec "$@" --show-output' "$here/tests" "$tests" "$@" </dev/null 2>&1
    local status=$?
    # 101 is of tests that failed, which are counted one by one.
    case $status in 0 | 101) ;; *) echo "FAILED STEP: $name on $(basename "$root")" ;; esac
    return $status
}

# What the whole suite has compiled is there: with other options of cargo, crates would be built once more.
short() {
    local at=$dir/roots/trixie options=(--workspace)
    [ -z "${CI:-}" ] || options+=(--locked)
    root trixie "$at" || lacking short "its packages cannot be had (the reason is above)"
    inside "$at" ceph --version
    run "$at" rbd "${options[@]}" -- "${SHORT_RBD[@]}" && run "$at" osd "${options[@]}" -- "${SHORT_OSD[@]}"
    run "$at" tune_mistakes "${options[@]}" --
    exit 0
}

mkdir -p "$dir/roots"
case $form in
short) short ;;
root) root trixie "$dir/roots/trixie" && exit ;;
'') ;;
*) die "usage: scripts/test-releases.sh [short|root]" ;;
esac

log=$dir/test-releases.log
: >"$log"
cargo build --release -p loligo || exit 1
for release in ${RELEASES:-trixie sid}; do
    at=$dir/roots/$release
    if ! root "$release" "$at"; then
        echo "SKIPPED STEP: no root of $release: its packages cannot be had (the reason is above)" | tee -a "$log"
        continue
    fi
    inside "$at" ceph --version | tee -a "$log"
    for name in ${SUITES:-rbd osd tune tune_apply tune_keys tune_acts tune_mistakes}; do
        run "$at" "$name" -p loligo-tests --test "$name" -- ${FILTER:+"$FILTER"} | tee -a "$log"
    done
done
say "The whole output is in $log"
grep '^SKIP' "$log" | sort | uniq -c >&2
awk -f scripts/failures.awk -v first=25 -v last=15 "$log"
awk -f scripts/tally.awk "$log"
