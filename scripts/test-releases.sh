#!/bin/bash
# The suites of RBD images and OSDs on other releases of Ceph: 18.2 in a root of Debian 13, 20.2 in one of sid. The roots are
# made by mmdebstrap below the target directory, once; nothing on the host changes. Needs root. The last line is
# `N passed, N failed, N skipped`.
#
#   RELEASES="trixie"   only these (trixie sid without it)
#   SUITES="rbd"        only these (rbd osd without it)
#   FILTER=late         only tests with this in their name
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/need.sh

PACKAGES=ca-certificates,ceph-mon,ceph-mgr,ceph-osd,ceph-common,librbd1,rbd-mirror,iproute2,fio,qemu-utils,libnbd-bin,nbdkit,fuse3
PACKAGES+=,e2fsprogs,procps,udev,lvm2,kmod

[ "$(id -u)" = 0 ] || die "make test-releases mounts and enters roots: run it as root"
need_build
need mmdebstrap util-linux || die "mmdebstrap is missing: apt-get install mmdebstrap"
mkdir -p "$(target_dir)"
dir=$(realpath "$(target_dir)")
here=$(pwd)
log=$dir/test-releases.log
: >"$log"
cargo build --release -p loligo || exit 1

# The newest program of a suite.
suite() {
    cargo test -p loligo-tests --test "$1" --no-run --message-format=json-render-diagnostics |
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
        root=$0 here=$1 target=$2
        shift 2
        mount --bind "$root" "$root"
        mount --rbind /dev "$root/dev"
        mount --rbind /sys "$root/sys"
        mount -t proc proc "$root/proc"
        mount -t tmpfs tmpfs "$root/run"
        mount -t tmpfs tmpfs "$root/tmp"
        mkdir -p "$root$here" "$root$target"
        mount --bind "$here" "$root$here"
        mount --bind "$target" "$root$target"
        exec chroot "$root" env HOME=/root LOLIGO_BIN="$target/release/loligo" "$@"' "$1" "$here" "$dir" "${@:2}"
}

mkdir -p "$dir/roots"
for release in ${RELEASES:-trixie sid}; do
    at=$dir/roots/$release
    if ! root "$release" "$at"; then
        echo "SKIP: no root of $release: its packages cannot be had (the reason is above)" | tee -a "$log"
        continue
    fi
    inside "$at" ceph --version | tee -a "$log"
    for name in ${SUITES:-rbd osd}; do
        program=$(suite "$name")
        [ -n "$program" ] || { echo "FAILED STEP: compile $name" | tee -a "$log"; continue; }
        echo "== $name on $release" | tee -a "$log"
        inside "$at" sh -c 'cd "$0" && exec "$@" --show-output' "$here/tests" "$program" ${FILTER:+"$FILTER"} \
            </dev/null 2>&1 | tee -a "$log"
        case ${PIPESTATUS[0]} in 0 | 101) ;; *) echo "FAILED STEP: $name on $release" | tee -a "$log" ;; esac
    done
done
say "The whole output is in $log"
grep '^SKIP' "$log" | sort | uniq -c >&2
awk -f scripts/failures.awk -v first=25 -v last=15 "$log"
awk -f scripts/tally.awk "$log"
