#!/bin/bash
# Installs what was built: install.sh PROGRAM. DESTDIR (default: none) and PREFIX (default: /usr/local) as usual. Nothing is started
# or enabled, and a configuration that is there is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."
program=$1
prefix=${PREFIX:-/usr/local}
to=${DESTDIR:-}$prefix

# put MODE FILE PLACE: a file, with the folder of the program filled in.
put() {
    install -d "$(dirname "$3")"
    sed "s|@BINDIR@|$prefix/bin|g" "$2" >"$3.new"
    chmod "$1" "$3.new"
    mv "$3.new" "$3"
}

install -D -m 755 "$program" "$to/bin/loligo"
ln -sf loligo "$to/bin/loligod"
# Units go where systemd looks for those of this prefix.
units=$to/lib/systemd/system
put 644 packaging/systemd/loligod.service "$units/loligod.service"
put 644 packaging/systemd/loligo-tune-threads@.service "$units/loligo-tune-threads@.service"
for unit in ceph-osd@.service ceph-volume@.service; do
    put 644 "packaging/systemd/$unit.d/10-loligo.conf" "$units/$unit.d/10-loligo.conf"
done
put 644 packaging/udev/61-loligo.rules "$to/lib/udev/rules.d/61-loligo.rules"
put 644 packaging/modules-load.d/loligo.conf "$to/lib/modules-load.d/loligo.conf"
put 644 packaging/loligod.toml "$to/share/doc/loligo/loligod.toml"
install -m 644 LICENSE "$to/share/doc/loligo/copyright"

pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
"$program" man "$pages"
for section in 1 8; do
    install -d "$to/share/man/man$section"
    for page in "$pages"/*."$section"; do
        gzip -9n <"$page" >"$to/share/man/man$section/$(basename "$page").gz"
    done
done
for shell in bash zsh fish; do
    case $shell in
        bash) place=bash-completion/completions/loligo ;;
        zsh) place=zsh/site-functions/_loligo ;;
        fish) place=fish/vendor_completions.d/loligo.fish ;;
    esac
    install -d "$(dirname "$to/share/$place")"
    "$program" completions "$shell" >"$to/share/$place"
done
echo "$to/bin/loligo"
