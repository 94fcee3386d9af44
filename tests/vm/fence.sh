# The claims about fences (tests/src/fence_claims) on the kernel's own targets: two paths to one LUN, on which writes are slow by
# place. TARGETS names them: lio (iSCSI over the loopback), nvmet (nvme-loop).
#
# tcm_loop is of no use: PREEMPT AND ABORT waits there for the work item that it runs in.
SLOW=1500
SHORT=300

# slow NUMBER: the LUN's device, /dev/mapper/slowNUMBER, over RAM: 64 MiB, of which the second half writes slowly.
slow() {
    printf '%s\n' "0 65536 linear /dev/ram$1 0" \
        "65536 32768 delay /dev/ram$1 65536 0 /dev/ram$1 65536 $SLOW" \
        "98304 32768 delay /dev/ram$1 98304 0 /dev/ram$1 98304 $SHORT" >/run/table
    must dmsetup create slow$1 /run/table
    backing=/dev/$(basename "$(readlink -f /dev/mapper/slow$1)")
    [ -b $backing ] || backing=/dev/dm-$(dmsetup info -c --noheadings -o minor slow$1)
}

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

lio() {
    loaded target_core_iblock iscsi_target_mod iscsi_tcp sd_mod
    CONFIG=/sys/kernel/config/target
    # Registrations that are to outlive a restart of the target are stored there.
    mkdir -p /var/target/pr
    slow 0
    must mkdir -p $CONFIG/core/iblock_0/lun
    echo "udev_path=$backing" >$CONFIG/core/iblock_0/lun/control || fail "no backing device"
    echo loligo-fence >$CONFIG/core/iblock_0/lun/wwn/vpd_unit_serial
    echo 1 >$CONFIG/core/iblock_0/lun/enable || fail "the backing device is refused"
    path 1
    path 2
    claims lio /dev/sda /dev/sdb
    [ -s /var/target/pr/aptpl_loligo-fence ] || fail "LIO stores no registrations"
}

# host NUMBER: a host with a name of its own to the one subsystem.
host() {
    local id=0000000$1-0000-4000-8000-000000000000
    echo "transport=loop,nqn=loligo,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$id,hostid=$id,duplicate_connect" >/dev/nvme-fabrics ||
        fail "nvme-loop does not connect"
    within 10 come 'nvme*n*' $1
}

nvmet() {
    modprobe nvme_core multipath=N || fail "modprobe nvme_core"
    loaded nvmet nvme_loop
    CONFIG=/sys/kernel/config/nvmet
    slow 1
    must mkdir -p $CONFIG/subsystems/loligo/namespaces/1 $CONFIG/ports/1
    echo 1 >$CONFIG/subsystems/loligo/attr_allow_any_host
    printf %s $backing >$CONFIG/subsystems/loligo/namespaces/1/device_path || fail "no backing device"
    echo 1 >$CONFIG/subsystems/loligo/namespaces/1/resv_enable || fail "this kernel's nvmet has no reservations"
    echo 1 >$CONFIG/subsystems/loligo/namespaces/1/enable || fail "the namespace does not come up"
    echo loop >$CONFIG/ports/1/addr_trtype
    must ln -s $CONFIG/subsystems/loligo $CONFIG/ports/1/subsystems/loligo
    host 1
    host 2
    claims nvmet /dev/nvme0n1 /dev/nvme1n1
}

claims() {
    echo "on $1, kernel $(uname -r):"
    t=$(now)
    fence-claims "$@" || fail "claims do not hold on $1"
    echo "claims_ms $1 $(($(now) - t))"
}

ifconfig lo up
modprobe brd rd_nr=2 rd_size=65536
modprobe dm-delay
for target in $TARGETS; do $target; done
