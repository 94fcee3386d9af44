# Lives of a machine with systemd and OSDs that ceph-volume made. The caches are /dev/vda, /dev/vdc and /dev/vde, the disks behind them
# /dev/vdb (osd.0, by 'ceph-volume raw' on its volume), /dev/vdd (osd.1, by 'ceph-volume lvm' on its volume) and /dev/vdf (osd.2, made by
# ceph-volume alone, and adopted). LIFE is the life's number; LAST the last write that the lives before were promised.
#   1: all are made; load; an orderly shutdown.
#   2: they come up on their own; the caches are taken away from one and the volume from another; an orderly shutdown.
#   3: the one without a cache is ceph-volume's again.
OBJECTS=200
PGS=12
DIR=/var/lib/ceph/osd/ceph
KEYRING=/var/lib/ceph/bootstrap-osd/ceph.keyring

unit() { echo "ceph-volume@lvm-2-$(cat $DIR-2/fsid)"; }
is() { systemctl is-enabled "$(unit)"; }
folder() { findmnt -n -o FSTYPE "$DIR-$1"; }
leads() { same "the block of osd.$1" "$2" "$(readlink $DIR-$1/block)"; }
made_by() { loligo osd list | awk -v osd="osd.$1" '$0 ~ osd { print; exit }' | grep -qw -- "$2" || fail "osd.$1 is not listed as made by $2: $(loligo osd list)"; }
right() { python3 /run/vm/objects.py check p $OBJECTS $LAST || fail "an object is not as it was acknowledged"; }

# writes SECONDS: for so long, and says up to which number all are acknowledged.
writes() {
    python3 /run/vm/objects.py write p $OBJECTS $((LAST + 1)) 8 >/run/vm/acked 2>&1 &
    writer=$!
    sleep $1
    kill $writer
    wait $writer || { cat /run/vm/acked; fail "the client failed"; }
    LAST=$(awk '$1 == "acked" { n = $2 } END { print n }' /run/vm/acked)
    echo "acked $LAST"
}

case $LIFE in
1)
    begun
    prepare="loligo osd prepare --data /dev/vdb --cache /dev/vda --by ceph-volume-raw --class cold"
    rm -f $KEYRING
    refused "ceph auth get" $prepare
    install -d -o ceph -g ceph /var/lib/ceph/bootstrap-osd
    ceph auth get client.bootstrap-osd -o $KEYRING >/run/vm/key 2>&1 ||
        must ceph auth get-or-create client.bootstrap-osd mon 'profile bootstrap-osd' -o $KEYRING
    refused "makes a file" $prepare --via fuse
    refused "leave --osd-dir" $prepare --user root:root
    t=$(now)
    must $prepare
    echo "by ceph-volume raw: $(($(now) - t)) ms"
    leads 0 /dev/loligo/osd0
    made_by 0 ceph-volume-raw
    same "the id that is remembered" "$(cat $DIR-0/fsid)" "$(loligo osd list --json | value uuid)"
    same "its class" cold "$(ceph osd crush get-device-class osd.0)"
    t=$(now)
    must loligo osd prepare --data /dev/vdd --cache /dev/vdc --by ceph-volume-lvm
    echo "by ceph-volume lvm: $(($(now) - t)) ms"
    leads 1 /dev/ceph-loligo-osd1/osd-block
    made_by 1 ceph-volume-lvm
    for osd in 0 1; do same "the folder of osd.$osd is on disk" "" "$(folder $osd)"; done
    t=$(now)
    must ceph-volume lvm create --bluestore --data /dev/vdf --crush-device-class hdd
    within 240 up 2
    echo "ceph-volume alone: $(($(now) - t)) ms"
    same "the folder of osd.2" tmpfs "$(folder 2)"
    same "its unit" enabled "$(is)"
    origin=$(readlink $DIR-2/block)
    must ceph osd pool create p $PGS $PGS
    writes 15
    # There is no manager to ask whether it may.
    must systemctl stop ceph-osd@2
    t=$(now)
    must loligo osd adopt 2 --cache /dev/vde
    echo "adopted: $(($(now) - t)) ms"
    same "its unit" disabled "$(is)"
    same "its folder is on disk" "" "$(folder 2)"
    leads 2 /dev/loligo/osd2
    echo "$origin" >/var/lib/loligo-origin
    # What is dirty stays so.
    for osd in 0 1 2; do must loligo param set osd$osd destage-rate 1; done
    writes 15
    right
    touch /run/vm/poweroff
    ;;
2)
    for osd in 0 1 2; do
        within 400 up $osd
        echo "ok: osd.$osd is up $(now) ms after the boot"
        once $osd
        same "the folder of osd.$osd is on disk" "" "$(folder $osd)"
    done
    leads 0 /dev/loligo/osd0
    leads 1 /dev/ceph-loligo-osd1/osd-block
    leads 2 /dev/loligo/osd2
    right
    node=$(readlink -f /dev/loligo/osd1)
    same "where LVM has the group" "$node" "$(vgs --noheadings -o pv_name ceph-loligo-osd1 | tr -d ' ')"
    same "what udev knows of it" LVM2_member "$(udevadm info -q property --property=ID_FS_TYPE --value $node)"
    for disk in vdb vdd; do
        blkid -p /dev/$disk && fail "blkid finds something on /dev/$disk"
        pvs /dev/$disk >/run/vm/pvs 2>&1 && { cat /run/vm/pvs; fail "LVM finds something on /dev/$disk"; }
    done
    for osd in 0 1 2; do ended ceph-osd@$osd loligod; done
    journalctl -b -1 -u loligod -o cat | grep "is in use: it stays" && fail "somebody still had a volume open when loligod was stopped"

    must systemctl stop ceph-osd@2
    must loligo osd release 2
    within 240 up 2
    leads 2 "$(cat /var/lib/loligo-origin)"
    same "its unit" enabled "$(is)"
    right
    echo "ok: the cache is taken away, and the unit is enabled again"
    must systemctl stop ceph-osd@1
    # The word for people goes to a manager, and there is none.
    must timeout 60 ceph osd purge-actual 1 --yes-i-really-mean-it
    must loligo osd remove 1
    [ ! -e /dev/ceph-loligo-osd1 ] && [ ! -e /dev/loligo/osd1 ] || fail "something is left of osd.1"
    echo "ok: the group goes with its volume"
    touch /run/vm/poweroff
    ;;
3)
    within 400 up 2
    within 400 up 0
    same "the folder of osd.2" tmpfs "$(folder 2)"
    leads 2 "$(cat /var/lib/loligo-origin)"
    refused "there is no volume" loligo volume show osd2
    echo "ok: ceph-volume starts what was its own"
    for osd in 0 2; do
        must systemctl stop ceph-osd@$osd
        whole $osd
    done
    ;;
esac
