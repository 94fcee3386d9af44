# An OSD on a ublk device while loligod is killed under it. /dev/vda is the cache, /dev/vdb the core. KILLS is how often.
D=/dev/loligo/osd0
OBJECTS=400
PGS=8
serving() { [ "$(loligo volume show --json osd0 | value state)" = serving ]; }

mkdir -p /etc/loligo /var/lib/loligo
echo '[daemon]' >/etc/loligo/loligod.toml
monitor_made
ceph-mon -i a --setuser ceph --setgroup ceph || fail "the monitor"
within 120 answers
daemon
t=$(now)
must loligo osd prepare --data /dev/vdb --cache /dev/vda --via ublk
echo "prepared in $(($(now) - t)) ms"
osd=$(pidof ceph-osd)
same "the device" ublkb0 "$(basename "$(readlink $D)")"
must ceph osd pool create p $PGS $PGS
within 120 sh -c "ceph osd pool ls | grep -qx p"

python3 /run/vm/objects.py write p $OBJECTS 1 8 >/run/vm/acked 2>&1 &
writer=$!
within 60 grep -q acked /run/vm/acked
# marked: how the writer fared since it was last asked: slowest write, longest stall of the device, writes.
marked() { touch /run/vm/mark; within 120 test ! -e /run/vm/mark; cat /run/vm/mark.said; }
sleep 10; marked >/dev/null
sleep 10
echo "| kill | requests in flight | loligod back after ms | device stalled ms | slowest write ms | writes since | OSD |"
echo "| ---: | ---: | ---: | ---: | ---: | ---: | --- |"
set -- $(marked)
echo "| none | | | $2 | $1 | $3 | $osd |"
for kill in $(seq $KILLS); do
    sleep 1.$((kill * 37 % 10))
    marked >/dev/null
    waits=$(awk '{ print $1 + $2 }' /sys/block/ublkb0/inflight)
    t=$(now)
    killed
    [ -b /dev/ublkb0 ] && [ -e $D ] || fail "the device went with its service"
    daemon
    back=$(($(now) - t))
    serving || fail "loligod is ready and the volume is not"
    sleep 4
    kill -0 $writer || { cat /run/vm/acked; fail "the client ended at kill $kill"; }
    set -- $(marked)
    [ $3 -gt 0 ] || fail "nothing was written after kill $kill"
    same "the OSD's process" $osd "$(pidof ceph-osd)"
    echo "| $kill | $waits | $back | $2 | $1 | $3 | $osd |"
    echo "stall $2 $1"
done
kill $writer
wait $writer || { cat /run/vm/acked; fail "the client failed"; }
last=$(awk '$1 == "acked" { n = $2 } END { print n }' /run/vm/acked)
python3 /run/vm/objects.py check p $OBJECTS $last || fail "an object is not as it was acknowledged"
up 0 || fail "the OSD is not up"
same "the OSD's process" $osd "$(pidof ceph-osd)"
same "times that it came up" 1 "$(grep -c 'osd.0 .* boot' /var/log/ceph/ceph.log)"
grep -E "aio_submit|_aio_thread got|Input/output error|bdev.*error" /var/log/ceph/ceph-osd.0.log && fail "the OSD saw an error"
dmesg | grep -E "I/O error|ublkb0.*error" && fail "the kernel saw an error"
echo "ok: killed $KILLS times, one and the same OSD, $last writes"
scrubbed p $PGS
kill $osd
within 120 sh -c "! pidof ceph-osd"
whole 0

# Cold starts for comparison: the same cache, nobody waiting.
killed
for i in 1 2 3 4 5; do
    t=$(now); daemon; ready=$(($(now) - t)); within 60 serving
    echo "cold_ms $ready"
    killed
done
daemon
within 60 serving
stopped
