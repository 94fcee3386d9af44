# fio verifies on a ublk device while its volume is changed and its daemon is killed. /dev/vda and /dev/vdb are caches, the core is
# a file. CHANGES is how many, SEED which ones.
modprobe ublk_drv
D=/dev/loligo/vol
bytes=$((96 << 20))
truncate -s $bytes /tmp/core
mkdir -p /etc/loligo /var/lib/loligo
echo '[daemon]' >/etc/loligo/loligod.toml
load() {
    fio --name=v --filename=$D --rw=randwrite --bsrange=4k-64k --size=64m --direct=1 --ioengine=io_uring --iodepth=16 \
        --rate_iops=1500 --verify=crc32c --verify_fatal=1 --output-format=json --output=/tmp/fio.json "$@" >/tmp/fio.log 2>&1 &
    fio=$!
}
# below N: a number from 0 to N - 1, in $drawn.
below() {
    SEED=$(((SEED * 1103515245 + 12345) % 2147483648))
    drawn=$(((SEED >> 8) % $1))
}
attached=yes
# change: something else about the volume; what it was in $did.
change() {
    below 8
    case $drawn in
    0 | 1)
        below 6
        did="mode $(echo wb wt wa wi wo wb | cut -d' ' -f$((drawn + 1)))"
        [ $attached = yes ] || return 0
        must loligo mode vol ${did#mode }
        ;;
    2)
        below 90
        did="param destage-low $drawn"
        [ $attached = yes ] || return 0
        must loligo param set vol destage-low $drawn
        ;;
    3 | 4)
        if [ $attached = yes ]; then
            did=detach
            must loligo volume detach vol
            attached=no
        else
            below 2
            did="attach $(echo vda vdb | cut -d' ' -f$((drawn + 1)))"
            must loligo volume attach vol --cache /dev/${did#attach } --mode wb
            attached=yes
        fi
        ;;
    5)
        bytes=$((bytes + (1 << 20)))
        did="resize to $bytes"
        must loligo volume resize vol --size $bytes
        ;;
    6)
        did=kill
        killed
        daemon
        loligo volume show --json vol | grep -q '"serving"' || { loligo volume list; fail "the volume is not served again"; }
        ;;
    7)
        did=flush
        [ $attached = yes ] || return 0
        must loligo flush vol
        ;;
    esac
}
changes() {
    for n in $(seq $1); do
        change
        echo "$did" >>/run/did
        below 5
        sleep 0.$drawn
        kill -0 $fio 2>/dev/null || { cat /tmp/fio.log /tmp/fio.json; fail "fio ended after: $(tail -n 4 /run/did | tr '\n' ',')"; }
    done
}

daemon
must loligo volume create vol --core /tmp/core --cache /dev/vda --mode wb --listen ublk:vol
load --time_based --runtime=3600 --verify_backlog=256
sleep 1
changes $CHANGES
fio_ended
echo "ok: changed under fio, every byte verified: $(sort /run/did | sed 's/ .*//' | uniq -c | tr -s ' \n' ' ')"

# What grew while it was open is there for whoever comes next.
has() { [ "$(blockdev --getsize64 $D)" = "$1" ]; }
within 5 has $bytes
echo "ok: the device has $bytes bytes now that nobody has it open"

# One pass over it, changed and killed under it; then the core alone has every byte.
load --do_verify=0
sleep 0.5
[ $attached = no ] && { must loligo volume attach vol --cache /dev/vdb --mode wb; attached=yes; }
must loligo mode vol wb
killed
daemon
wait $fio || { cat /tmp/fio.json; fail "fio"; }
must loligo volume detach vol
must fio --name=v --filename=/tmp/core --rw=randwrite --bsrange=4k-64k --size=64m --ioengine=psync --verify=crc32c --verify_only=1 \
    --verify_fatal=1
must loligo volume stop vol
stopped
[ -z "$(ls /dev/ublkb* 2>/dev/null)" ] || fail "something is left"
echo "ok: after a detach the core alone has every byte"
