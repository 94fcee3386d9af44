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

lio() {
    slow 0
    target $backing loligo-fence
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
for kind in $TARGETS; do $kind; done
