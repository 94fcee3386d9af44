# One life of a machine with systemd, the packaged units and an OSD on a cached disk. /dev/vda is the cache, /dev/vdb the core.
# LIFE is its number; LAST the last write that the lives before were promised.
#   1: everything is made; load; an orderly shutdown.
#   2: the OSD comes up on its own; load, until the machine is cut off.
#   3: the OSD comes up on its own; everything is looked at.
OBJECTS=300
PGS=8
field() { systemctl show -p "$2" --value "$1"; }
active() { [ "$(field $1 ActiveState)" = active ]; }

paused() { [ "$(field ceph-osd@0 SubState)" = auto-restart ]; }

# before FIRST SECOND: the one had begun when the start of the other began.
before() {
    local first=$(field $1 ActiveEnterTimestampMonotonic) second=$(field $2 InactiveExitTimestampMonotonic)
    [ "${first:-0}" -gt 0 ] && [ "${second:-0}" -ge "$first" ] ||
        fail "$1 was there at ${first:-never} us, and the start of $2 began at ${second:-never} us"
    echo "ok: $1 was there $(((second - first) / 1000)) ms before the start of $2 began"
}

# comes_up: the OSD does, and nobody did anything for it.
comes_up() {
    within 400 up 0
    echo "ok: the OSD is up $(now) ms after the boot"
    same "the device" ublkb0 "$(basename "$(readlink /dev/loligo/osd0)")"
    once 0
    before loligod.service ceph-osd@0.service
    before loligod.service blk-availability.service
    python3 /run/vm/objects.py check p $OBJECTS $LAST || fail "an object is not as it was acknowledged"
}

dirty() { loligo volume show --json osd0 | value dirty_bytes; }

write() {
    python3 /run/vm/objects.py write p $OBJECTS $((LAST + 1)) 8 &
    writer=$!
}

# hidden: nobody finds anything of the OSD on its raw disk.
hidden() {
    blkid -p /dev/vdb && fail "blkid finds something"
    pvs /dev/vdb >/run/vm/pvs 2>&1 && { cat /run/vm/pvs; fail "LVM finds something"; }
    ceph-bluestore-tool show-label --dev /dev/vdb >/run/vm/label 2>&1 && { cat /run/vm/label; fail "a label of BlueStore's"; }
    same "ceph-volume raw list" "{}" "$(ceph-volume raw list /dev/vdb 2>/run/vm/raw)"
    ceph-volume lvm activate --all >/run/vm/activate 2>&1
    grep -qi "activating osd\|activate successful" /run/vm/activate && { cat /run/vm/activate; fail "ceph-volume activated something"; }
    same "its kind by udev" loligo_core "$(udevadm info -q property --property=ID_FS_TYPE --value /dev/vdb)"
    same "its link" vdb "$(basename "$(readlink /dev/disk/by-loligo/core-osd0)")"
    same "the cache's link" vda "$(basename "$(readlink /dev/disk/by-loligo/cache-osd0)")"
    echo "ok: blkid, pvs, ceph-bluestore-tool, ceph-volume raw list and lvm activate --all find nothing on the raw disk $1"
    echo "    ceph-volume said: $(tr '\n' ' ' </run/vm/activate)"
}

case $LIFE in
1)
    begun
    t=$(now)
    must loligo osd prepare --data /dev/vdb --cache /dev/vda --via ublk
    echo "prepared in $(($(now) - t)) ms"
    same "ceph-osd@0 at boot" enabled "$(systemctl is-enabled ceph-osd@0)"
    must ceph osd pool create p $PGS $PGS
    # What is dirty stays so.
    must loligo param set osd0 destage-rate 1
    write
    sleep 30
    kill $writer
    wait $writer || fail "the client failed"
    echo "dirty $(dirty)"
    touch /run/vm/poweroff
    ;;
2)
    comes_up
    ended ceph-osd@0 loligod
    ended blk-availability loligod
    journalctl -b -1 -u loligod -o cat | grep "stopped:" || fail "loligod did not say how it stopped"
    echo "dirty $(dirty)"
    write
    wait $writer
    fail "the client ended"
    ;;
3)
    comes_up
    hidden "while it is served"
    same "ceph-volume raw list of the volume" 0 "$(ceph-volume raw list /dev/ublkb0 2>/dev/null | value osd_id)"
    must systemctl stop ceph-osd@0
    whole 0
    must systemctl stop loligod
    [ ! -e /dev/ublkb0 ] || fail "a device that nobody has open is still there"
    hidden "after loligod has stopped"
    # Without its volume it fails, and waits in systemd's pause; the volume is not to wait for that.
    mkdir -p /run/systemd/system/ceph-osd@0.service.d
    printf '[Service]\nRestart=on-failure\nRestartSec=1800\n' >/run/systemd/system/ceph-osd@0.service.d/pause.conf
    must systemctl daemon-reload
    systemctl start ceph-osd@0
    within 60 paused
    must systemctl start loligod
    t=$(now)
    within 300 up 0
    echo "ok: an OSD that systemd let wait for half an hour was up $(($(now) - t)) ms after its volume was there"
    must systemctl stop ceph-osd@0
    ;;
esac
