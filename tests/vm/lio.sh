# Targets of LIO, iSCSI over the loopback: paths to one LUN, each an initiator's own.

# loaded MODULE...: they are, and targets can be set up by files.
loaded() {
    local module
    for module; do modprobe $module || fail "modprobe $module"; done
    grep -q /sys/kernel/config /proc/mounts || mount -t configfs none /sys/kernel/config || fail configfs
}

# come PATTERN NUMBER: that many block devices have these names.
come() { [ "$(ls -d /sys/block/$1 2>/dev/null | wc -l)" = $2 ]; }

# path NUMBER: an initiator of its own to a target of its own. A second session to the same target is refused.
path() {
    local target=$CONFIG/iscsi/iqn.2026-11.loligo:port$1/tpgt_1
    must mkdir -p $target/lun/lun_0 $target/np/127.0.0.1:326$1
    must ln -s $CONFIG/core/iblock_0/lun $target/lun/lun_0/lun
    for attribute in generate_node_acls=1 authentication=0 demo_mode_write_protect=0; do
        echo ${attribute#*=} >$target/attrib/${attribute%=*} || fail "$attribute"
    done
    echo 1 >$target/enable || fail "the target does not come up"
    must iscsistart -i iqn.2026-11.loligo:controller$1 -t iqn.2026-11.loligo:port$1 -g 1 -a 127.0.0.1 -p 326$1
    within 10 come 'sd*' $1
}

# target DEVICE SERIAL: the LUN, with this backing device.
target() {
    loaded target_core_iblock iscsi_target_mod iscsi_tcp sd_mod
    CONFIG=/sys/kernel/config/target
    # Registrations that are to outlive a restart of the target are stored there.
    mkdir -p /var/target/pr
    must mkdir -p $CONFIG/core/iblock_0/lun
    echo "udev_path=$1" >$CONFIG/core/iblock_0/lun/control || fail "no backing device"
    echo $2 >$CONFIG/core/iblock_0/lun/wwn/vpd_unit_serial
    echo 1 >$CONFIG/core/iblock_0/lun/enable || fail "the backing device is refused"
}
