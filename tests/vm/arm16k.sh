# The program for aarch64 on a kernel whose pages have 16 KiB. /dev/vda is a cache, /dev/vdb its core; /dev/vdc and /dev/vdd are those
# of an OSD.
D=/dev/loligo/vol
S=/run/vol.sock
M=/run/vol.mount
mkdir -p $M

# put LISTEN: the volume, in write-back mode.
put() { serve --name vol --cache /dev/vda --core /dev/vdb --mode wb --listen "$1" --shards 2; }

# written FILE ENGINE OPTION...: 4 KiB and more at any multiple of 4 KiB, each block with its own CRC32C. read_back checks them.
written() {
    of=$1 with="--name=v --filename=$1 --ioengine=$2 --rw=randwrite --bsrange=4k-64k --blockalign=4k --size=12m --randseed=7"
    shift 2
    must fio $with "$@" --verify=crc32c --do_verify=0 --end_fsync=1
}
read_back() { must fio $with "$@" --verify=crc32c --verify_only=1 --verify_fatal=1; }

# field NAME FILE: a field of facts in JSON, the first of that name.
field() { grep -o "\"$1\": *[^,}]*" $2 | head -n 1 | sed 's/^[^:]*: *//; s/"//g'; }

same "the kernel's pages" 16384 "$(getconf PAGESIZE)"
echo "version $(loligo --version)"
echo "kernel $(uname -r) $(uname -m)"
loligo tune facts --no-cluster --json >/run/host.json || fail "tune facts --no-cluster"
same "arch" aarch64 "$(field arch /run/host.json)"
same "page_size" 16384 "$(field page_size /run/host.json)"
same "the instructions of Ceph's CRC32C" armv8 "$(field crc /run/host.json)"
echo "ok: it starts, and the tuner says how large pages are"

loligo bench crc --json >/run/crc.json || fail "bench crc"
same "emulated" true "$(field emulated /run/crc.json)"
echo "in_use $(field in_use /run/crc.json)"
loligo bench crc

put fuse:$M
written $M/vol psync --direct=1
killed
umount -l $M 2>/dev/null
put fuse:$M
read_back --direct=1
must fio --name=s --filename=$M/vol --ioengine=psync --rw=randrw --bs=4k --size=4m --offset=32m --direct=1 \
    --verify=crc32c --verify_fatal=1
stopped
echo "ok: fuse, direct requests of 4 KiB: killed, started, verified"

put unix:$S
with="--name=v --ioengine=nbd --uri=nbd+unix:///vol?socket=$S --rw=randwrite --bsrange=4k-64k --blockalign=4k --size=12m --iodepth=16"
must fio $with --verify=crc32c --do_verify=0
killed
put unix:$S
read_back
stopped
echo "ok: nbd: killed, started, verified"

put ublk:vol
same "logical block" 512 "$(queue ublkb0 logical_block_size)"
written $D io_uring --direct=1 --iodepth=16
killed
put ublk:vol
read_back --direct=1
must fio --name=s --filename=$D --ioengine=libaio --rw=randrw --bs=512 --size=1m --offset=64m --direct=1 --iodepth=8 \
    --verify=crc32c --verify_fatal=1
must mkfs.ext4 -q -b 4096 $D
must mount $D /mnt
written /mnt/file mmap
must umount /mnt
killed
put ublk:vol
must mount $D /mnt
read_back
must umount /mnt
must e2fsck -fn $D
stopped
echo "ok: ublk, requests of 512 bytes, and mapped pages of a file system of 4 KiB blocks: killed, started, verified"

put block:vol
written $D psync --direct=1
killed
put block:vol
read_back --direct=1
stopped
echo "ok: loop: killed, started, verified"

truncate -s 256M /var/tmp/core
files() { serve --name files --cache /var/tmp/cache --cache-size 64m --core /var/tmp/core --mode wb --listen unix:$S; }
files
with="--name=v --ioengine=nbd --uri=nbd+unix:///files?socket=$S --rw=randwrite --bs=4k --size=8m --iodepth=16"
must fio $with --verify=crc32c --do_verify=0
killed
files
read_back
stopped
echo "ok: cache and core in files: killed, started, verified"

# An OSD on a volume, for its tcmalloc. Commands of Ceph begin with half a minute of Python where the emulator shares its processor.
answers() { ceph --connect-timeout 120 mon stat; }
up() { ceph --connect-timeout 120 tell osd.$1 version; }
monitor_made
ceph-mon -i a --setuser ceph --setgroup ceph || fail "the monitor"
within 600 answers
serve --name osd --cache /dev/vdc --core /dev/vdd --mode wb --listen ublk:osd
dir=/var/lib/ceph/osd/ceph-0
uuid=$(cat /proc/sys/kernel/random/uuid)
mkdir -p $dir
must ceph osd new $uuid 0
must ceph auth get-or-create osd.0 mon 'allow profile osd' osd 'allow *' mgr 'allow profile osd' -o $dir/keyring
ln -s /dev/loligo/osd $dir/block
must ceph-osd -i 0 --mkfs --osd-uuid $uuid --osd-data $dir --log-file /var/log/ceph/mkfs.log
# Of 18.2 it measures its disk when it starts, which takes minutes here.
ceph-osd -f -i 0 --osd-data $dir --log-file /var/log/ceph/osd.log --osd_mclock_skip_benchmark=true >/run/osd.out 2>&1 &
osd=$!
within 600 up 0
loligo tune facts --json >/run/facts.json || fail "tune facts"
echo "osd_release $(field release /run/facts.json)"
echo "tcmalloc $(field tcmalloc /run/facts.json)"
echo "tcmalloc_page_size $(field tcmalloc_page_size /run/facts.json)"
must loligo tune plan --facts /run/facts.json
grep -A 8 MEM-06 /run/must.log
echo "told $(grep -c MEM-06 /run/must.log)"
kill $osd
wait $osd
kill $(pidof ceph-mon)
stopped
echo "ok: an OSD on a volume, and its tcmalloc"
