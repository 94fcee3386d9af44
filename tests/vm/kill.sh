# The service ends in every way it can, and its users notice nothing but time. /dev/vda and /dev/vdc are caches, /dev/vdb
# and /dev/vdd their cores. KILLS is how often it is killed under load.
modprobe ext4
modprobe ublk_drv
D=/dev/loligo/vol
vol() { serve --name vol --cache /dev/vda --core /dev/vdb --mode wb --listen ublk:vol --shards 2; }
other() { serve --name other --cache /dev/vdc --core /dev/vdd --mode wb --listen block:other \
    --dev-owner 1000:1001 --dev-name cas2-1; }

vol
fio --name=v --filename=$D --rw=randwrite --bsrange=4k-64k --size=96m --direct=1 --ioengine=io_uring --iodepth=16 \
    --time_based --runtime=3600 --verify=crc32c --verify_backlog=256 --verify_fatal=1 \
    --output-format=json --output=/tmp/fio.json >/tmp/fio.log 2>&1 &
fio=$!
sleep 2
for kill in $(seq $KILLS); do
    sleep 0.$((kill * 37 % 10))
    writes=$(awk '{ print $5 }' /sys/block/ublkb0/stat)
    waits=$(cat /sys/block/ublkb0/inflight | awk '{ print $1 + $2 }')
    began=$(now)
    killed
    [ -b /dev/ublkb0 ] && [ -e $D ] || fail "the device went with its service"
    vol
    echo "back $(($(now) - began)) ms after kill $kill, with $waits requests in flight"
    within 10 sh -c "[ \$(awk '{ print \$5 }' /sys/block/ublkb0/stat) -gt $((writes + 50)) ]"
    kill -0 $fio 2>/dev/null || fail "fio ended at kill $kill"
    sleep 1
done
fio_ended
echo "ios $(awk '/"total_ios"/ { gsub(/[^0-9]/, "", $3); sum += $3 } END { print sum }' /tmp/fio.json)"
awk '/"clat_ns"/ { inside = 1 } inside && /"max"/ { gsub(/[^0-9.]/, "", $3); if ($3 > max) max = $3; inside = 0 }
    END { printf "stall_ms %d\n", max / 1e6 }' /tmp/fio.json
same "the device" ublkb0 "$(basename "$(readlink $D)")"
echo "ok: killed $KILLS times under I/O, every byte verified"

# A cold start for comparison: the same cache, nobody waiting.
stopped
[ ! -e /dev/ublkb0 ] || fail "still there"
vol; killed
for i in 1 2 3; do
    began=$(now); vol; echo "cold_ms $(($(now) - began))"; killed
done
vol
stopped
[ ! -e /dev/ublkb0 ] || fail "a device that nobody has open survived a crash and a stop"
echo "ok: what a crash left with nobody on it goes with the next stop"

# Under a file system, killed while it is written to.
vol
must mkfs.ext4 -q $D
must mount $D /mnt
dd if=/dev/urandom of=/tmp/file bs=1M count=24 2>/dev/null
cp /tmp/file /mnt/file & copy=$!
sleep 0.3; killed; vol
wait $copy || fail "cp failed"
sync
cmp /tmp/file /mnt/file || fail "the file differs"

# A stop leaves a mounted device, and its users wait.
stopped
grep -q "is in use: it stays" /run/serve.log || fail "nothing was said"
[ -b /dev/ublkb0 ] && [ -e $D ] || fail "a stop took a mounted device away"
cp /tmp/file /mnt/second && sync & copy=$!
sleep 1
kill -0 $copy || fail "nobody served it, and it was written"
# Meanwhile another volume takes neither its device nor its files.
other
same "the other's device" ublkb1 "$(basename "$(readlink /dev/loligo/other)")"
refused "in use" loligo serve --name third --cache /dev/vdc --core /dev/vdd --mode wb --listen ublk:third
refused "being served" loligo serve --name other --cache /dev/vda --core /dev/vdb --mode wb --listen ublk:vol
truncate -s 16777216 /tmp/third
refused "is in use" loligo serve --name third --bare --core /tmp/third --listen ublk:other
same "a further name" /dev/loligo/other "$(readlink /dev/cas2-1)"
same "the owner" 1000:1001 "$(ls -ln /dev/ublkb1 | awk '{ print $3 ":" $4 }')"
[ ! -e /dev/ublkb2 ] || fail "a refused start left a device"
sleep 1000 </dev/loligo/other & holder=$!
sleep 0.2
stopped
[ -b /dev/ublkb1 ] || fail "a stop took a device away that a program has open"
refused "outlived its service" loligo serve --name third --bare --core /tmp/third --listen ublk:other
kill $holder; wait $holder 2>/dev/null
vol
same "the device" ublkb0 "$(basename "$(readlink $D)")"
wait $copy || fail "what waited for the service failed"
cmp /tmp/file /mnt/second || fail "the second file differs"
must umount /mnt
must e2fsck -fn $D
stopped
[ ! -e /dev/ublkb0 ] || fail "still there"
[ -b /dev/ublkb1 ] || fail "somebody else's device was taken away"
other
stopped
[ ! -e /dev/ublkb1 ] && [ ! -L /dev/cas2-1 ] || fail "still there"
echo "ok: open devices outlive stops, each is its own volume's, and none is left behind"
