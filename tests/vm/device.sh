# A ublk device does what a disk must do. /dev/vda is the cache, /dev/vdb the core.
modprobe ext4
modprobe brd rd_nr=2 rd_size=65536
D=/dev/loligo/vol

refused "modprobe ublk_drv" loligo serve --name vol --bare --core /dev/vdb --listen ublk:vol
modprobe ublk_drv
began=$(now)
serve --name vol --cache /dev/vda --core /dev/vdb --mode wb --listen ublk:vol --shards 2
same "the link" /dev/ublkb0 "$(readlink $D)"
same "bytes" "$(blockdev --getsize64 /dev/vdb)" "$(blockdev --getsize64 $D)"
same "queues" 2 "$(ls /sys/block/ublkb0/mq | wc -l)"
echo "ok: a device with a queue for each thread, $(($(now) - began)) ms after the start"

same "write_cache" "write back" "$(queue ublkb0 write_cache)"
same "fua" 1 "$(queue ublkb0 fua)"
echo "ok: a cache that may lose what it answered says so"

must mkfs.ext4 -q $D
must mount $D /mnt
dd if=/dev/urandom of=/mnt/file bs=1M count=8 2>/dev/null
sum=$(md5sum </mnt/file)
before=$(figure vol flush)
dd if=/dev/zero of=/mnt/small bs=4k count=1 conv=fsync 2>/dev/null
after=$(figure vol flush)
[ "$after" -gt "$before" ] || fail "an fsync did not arrive: $before flushes before, $after after"
echo "ok: an fsync arrives ($before flushes before, $after after)"
must umount /mnt
must e2fsck -fn $D
must mount $D /mnt
same "the file" "$sum" "$(md5sum </mnt/file)"
must umount /mnt
echo "ok: mkfs, mount, write, fsck"

before=$(figure vol flush)
must fio --name=f --filename=$D --rw=write --bs=4k --size=256k --ioengine=psync --fdatasync=1
after=$(figure vol flush)
[ $((after - before)) -ge 64 ] || fail "64 times fdatasync: $((after - before)) flushes"
echo "ok: every fdatasync of a program arrives"

must fio --name=v --filename=$D --rw=randwrite --bsrange=4k-1m --size=48m --direct=1 --ioengine=io_uring \
    --iodepth=32 --verify=crc32c --do_verify=1 --verify_fatal=1
must fio --name=v --filename=$D --rw=randrw --bs=512 --size=2m --offset=64m --direct=1 --ioengine=libaio --iodepth=16 \
    --verify=crc32c --verify_backlog=16 --verify_fatal=1
echo "ok: fio verify"

# Ones, with a discard and a hole of zeroes in them.
tr '\0' '\377' </dev/zero | dd bs=64k count=64 iflag=fullblock 2>/dev/null >/tmp/ones
must dd if=/tmp/ones of=$D bs=64k conv=fsync
must /usr/sbin/blkdiscard -z -o 262144 -l 1048576 $D
must /usr/sbin/blkdiscard -o 2097152 -l 524288 $D
echo 3 >/proc/sys/vm/drop_caches
dd if=$D bs=64k count=64 2>/dev/null >/tmp/read
cp /tmp/ones /tmp/expected
dd if=/dev/zero of=/tmp/expected bs=64k seek=4 count=16 conv=notrunc 2>/dev/null
# What was discarded may read as zeros or as before, each block as it likes.
dd if=/tmp/read of=/tmp/expected bs=64k skip=32 seek=32 count=8 conv=notrunc 2>/dev/null
cmp /tmp/read /tmp/expected || fail "discard or zeroes went wrong"
same "bytes neither zero nor as before" 0 "$(dd if=/tmp/read bs=64k skip=32 count=8 2>/dev/null | tr -d '\0\377' | wc -c)"
echo "ok: discard and write zeroes"
stopped
[ ! -e /dev/ublkb0 ] && [ ! -e $D ] || fail "a device that nobody has open is still there"
echo "ok: a stop with nobody on it deletes the device"

serve --name ram --cache /dev/ram0 --core /dev/ram1 --mode wb --listen ublk:ram --rotational yes
same "write_cache" "write through" "$(queue ublkb0 write_cache)"
same "rotational" 1 "$(queue ublkb0 rotational)"
stopped
serve --name ram --cache /dev/ram0 --core /dev/ram1 --mode wb --listen ublk:ram --rotational no
same "rotational" 0 "$(queue ublkb0 rotational)"
stopped
echo "ok: devices without a volatile cache need no flushes; rotational is as asked"

modprobe sd_mod
modprobe scsi_debug sector_size=4096 dev_size_mb=64 delay=0 && within 10 test -e /dev/sda
serve --name big --bare --core /dev/sda --listen ublk:big
same "logical block" 4096 "$(queue ublkb0 logical_block_size)"
refused "Invalid argument" fio --name=r --filename=/dev/loligo/big --rw=read --bs=512 --size=512 --direct=1 --ioengine=psync
must mkfs.ext4 -q /dev/loligo/big
must mount /dev/loligo/big /mnt
must dd if=/dev/urandom of=/mnt/file bs=1M count=4 conv=fsync
must umount /mnt
must e2fsck -fn /dev/loligo/big
must fio --name=v --filename=/dev/loligo/big --rw=randwrite --bs=4k --size=16m --direct=1 --ioengine=io_uring --iodepth=16 \
    --verify=crc32c --do_verify=1 --verify_fatal=1
stopped
echo "ok: 4096-byte sectors"

# Another size: for nobody who has it open.
truncate -s 16777216 /tmp/core
opened() { readlink /proc/$1/fd/0 | grep -q ublkb; }
# hold: somebody has it open from now on, who is $holder.
hold() { sleep 1000 </dev/loligo/third & holder=$!; within 10 opened $holder; }
third() { serve --name third --bare --core /tmp/core --listen ublk:third; }
third
hold
stopped
truncate -s 8388608 /tmp/core
refused "is open, but it has 16777216 bytes and the volume 8388608 now" \
    loligo serve --name third --bare --core /tmp/core --listen ublk:third
truncate -s 33554432 /tmp/core
third
same "bytes" 16777216 "$(blockdev --getsize64 /dev/loligo/third)"
grep -q "is open with 16777216 bytes and the volume has 33554432 now" /run/serve.log || fail "nothing was said"
echo "ok: another size is shown to nobody who has the device open"

# larger: the volume is, from another start on.
larger() {
    stopped
    bytes=$((bytes + 4194304))
    truncate -s $bytes /tmp/core
    third
}
grow() { hold; larger; }
has() { [ "$(blockdev --getsize64 /dev/loligo/third)" = "$1" ]; }
kill $holder; wait $holder 2>/dev/null
within 10 has 33554432
must fio --name=v --filename=/dev/loligo/third --rw=randwrite --bs=4k --size=32m --direct=1 --ioengine=io_uring --iodepth=16 \
    --verify=crc32c --do_verify=1 --verify_fatal=1
same "devices" 1 "$(ls -d /dev/ublkb* | wc -l)"
echo "ok: whoever comes again sees the new size, and the volume was not started again for it"

# Others come and go all the while: they find no device for a moment, but none that fails them.
(while [ ! -e /run/enough ]; do dd if=/dev/loligo/third of=/dev/null bs=4k count=1 iflag=direct 2>>/run/comers; done) & comers=$!
bytes=33554432
for round in 1 2 3 4 5; do
    grow
    has $bytes && fail "an open device has changed"
    kill $holder; wait $holder 2>/dev/null
    within 20 has $bytes
done
# A stop in the moment in which somebody asks must lose nobody's request: he would wait for ever, and so would the next start.
hold
for round in $(seq 12); do
    sleep 0.1
    stopped
    third
done
touch /run/enough
wait $comers
kill $holder; wait $holder 2>/dev/null
grep -q "records in" /run/comers || fail "nobody came"
grep -E "I/O error|Input/output|Invalid|No such device" /run/comers && fail "somebody got a device that was gone"
echo "ok: five times another size, and 12 stops, under users that come and go ($(grep -c 'No such file' /run/comers) found no name, $(grep -c 'records in' /run/comers) read)"

# What somebody wrote and closed is still on its way when he has it open no more.
dd if=/dev/urandom of=/tmp/written bs=1M count=48 2>/dev/null
for round in 1 2; do
    grow
    sleep 1.5
    rm -f /run/open
    (exec 3<>/dev/loligo/third; touch /run/open; exec dd if=/tmp/written bs=1M >&3 2>/run/must.log) & writer=$!
    within 10 test -e /run/open
    kill $holder; wait $holder 2>/dev/null
    wait $writer || { cat /run/must.log; fail "dd"; }
    within 20 has $bytes
    echo 3 >/proc/sys/vm/drop_caches
    dd if=/dev/loligo/third of=/tmp/read bs=1M count=48 2>/dev/null
    cmp /tmp/read /tmp/written || fail "round $round: what was written and closed is lost"
    dd if=/dev/zero of=/dev/loligo/third bs=1M count=48 conv=fsync 2>/dev/null
done
rm /tmp/read /tmp/written
echo "ok: nothing is lost of what was closed a moment before"

# Who has a partition open uses the device.
printf '\0\0\0\0\203\0\0\0\0\10\0\0\0\40\0\0' | dd of=/dev/loligo/third bs=1 seek=446 2>/dev/null
printf '\125\252' | dd of=/dev/loligo/third bs=1 seek=510 conv=fsync 2>/dev/null
must blockdev --rereadpt /dev/loligo/third
within 5 test -b /dev/ublkb0p1
former=$bytes
grow
sleep 1000 </dev/ublkb0p1 & part=$!
within 10 opened $part
kill $holder; wait $holder 2>/dev/null
sleep 7
has $former || fail "a device went whose partition somebody has open"
kill $part; wait $part 2>/dev/null
within 20 has $bytes
dd if=/dev/zero of=/dev/loligo/third bs=1k count=1 conv=fsync 2>/dev/null
must blockdev --rereadpt /dev/loligo/third
echo "ok: a device stays while somebody has a partition of it open"

must mkfs.ext4 -q /dev/loligo/third
must mount /dev/loligo/third /mnt
former=$bytes
larger
must dd if=/dev/urandom of=/mnt/file bs=1M count=4 conv=fsync
sum=$(md5sum </mnt/file)
sleep 6
has $former || fail "a mounted device has changed"
must umount /mnt
within 20 has $bytes
must mount /dev/loligo/third /mnt
same "the file" "$sum" "$(md5sum </mnt/file)"
must umount /mnt
stopped
[ -z "$(ls /dev/ublkb* 2>/dev/null)" ] || fail "something is left"
echo "ok: a file system that is unmounted and mounted again is on the larger device"
