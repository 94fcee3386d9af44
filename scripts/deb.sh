#!/bin/bash
# Makes a Debian package of what was built: deb.sh PROGRAM FOLDER. Its name is printed.
set -euo pipefail
cd "$(dirname "$0")/.."
program=$(realpath "$1")
mkdir -p "$2"
folder=$(realpath "$2")
version=$("$program" --version | cut -d' ' -f2)
arch=$(dpkg --print-architecture)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"

DESTDIR=$tree PREFIX=/usr scripts/install.sh "$program" >/dev/null
install -D -m 644 packaging/loligod.toml "$tree/etc/loligo/loligod.toml"
strip --strip-debug "$tree/usr/bin/loligo"

# The libraries it is linked with, by the packages that own them.
libraries=$(ldd "$program" | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p' | xargs -r -n 1 realpath)
depends=$(for library in $libraries; do
    dpkg-query --search "$library" "/usr$library" "${library#/usr}" 2>/dev/null | cut -d: -f1 || true
done | sort -u | paste -sd, | sed 's/,/, /g')

mkdir "$tree/DEBIAN"
cat >"$tree/DEBIAN/control" <<CONTROL
Package: loligo
Version: $version
Architecture: $arch
Maintainer: The Loligo authors <loligo@localhost>
Depends: $depends
Recommends: kmod
Suggests: librbd1, librados2, fuse3
Section: admin
Priority: optional
Installed-Size: $(du -sk "$tree" | cut -f1)
Description: Loligo makes Ceph block storage fast
 Puts flash in front of slow block devices: disks under OSDs, or RBD images on
 their clients' hosts. Writes are acknowledged from flash, safely, and reach the
 disk later in the order the disk likes best.
CONTROL
echo /etc/loligo/loligod.toml >"$tree/DEBIAN/conffiles"
# Nothing is started: a volume is for an administrator to name first. An upgrade leaves the daemon that runs alone; it takes the new
# program with 'systemctl restart loligod'.
cat >"$tree/DEBIAN/postinst" <<'POSTINST'
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
if command -v udevadm >/dev/null; then udevadm control --reload 2>/dev/null || true; fi
POSTINST
cp "$tree/DEBIAN/postinst" "$tree/DEBIAN/postrm"
chmod 755 "$tree/DEBIAN/postinst" "$tree/DEBIAN/postrm"
dpkg-deb --build --root-owner-group "$tree" "$folder/loligo_${version}_$arch.deb" >&2
echo "$folder/loligo_${version}_$arch.deb"
