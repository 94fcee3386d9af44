# A ublk device over two ram disks: what a disk must do, it does.
modprobe brd rd_nr=2 rd_size=98304 || fail "no ram disks"
modprobe ublk_drv
modprobe ext4
echo "ready $(now)"
serve --name vol --cache /dev/ram0 --core /dev/ram1 --mode wb --listen ublk:vol
echo "served $(now)"
ls -la /dev/loligo /dev/ublk*
D=/dev/loligo/vol
must mkfs.ext4 -q $D
must mount $D /mnt
dd if=/dev/urandom of=/mnt/file bs=1M count=8 2>/dev/null
sum=$(md5sum </mnt/file)
must umount /mnt
must e2fsck -fn $D
must mount $D /mnt
[ "$(md5sum </mnt/file)" = "$sum" ] || fail "the file has changed"
must umount /mnt
echo "mkfs $(now)"
must fio --name=v --filename=$D --rw=randwrite --bsrange=4k-256k --size=32m --direct=1 --ioengine=io_uring --iodepth=16 --verify=crc32c --do_verify=1 --verify_fatal=1
echo "verify $(now)"
cat /sys/block/ublkb0/queue/write_cache /sys/block/ublkb0/queue/fua /sys/block/ublkb0/queue/rotational
figure vol count
stopped
cat /run/serve.log
ls -la /dev/ublk* /dev/loligo
echo "gone $(now)"
