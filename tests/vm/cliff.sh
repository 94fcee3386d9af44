# Four caches, one after the other, over the same slow disk (/dev/vda), each with the same quarter of it in memory as its fast
# device: 4 KiB random writes over the whole disk, until well past full. ROUNDS, SECONDS_EACH and COUNTED (the last seconds,
# which count as the steady state) come from the test.
for m in ublk_drv bcache dm-writecache dm-cache dm-cache-smq; do modprobe $m || fail "no $m"; done
SIZE=$(blockdev --getsize64 /dev/vda)
SECTORS=$((SIZE / 512))
# /dev/ram0: the fast device, a quarter. /dev/ram1: what dm-cache keeps its map in, which the others keep in the quarter.
modprobe brd rd_nr=2 rd_size=$((SIZE / 4096))
wipe() { dd if=/dev/zero of=$1 bs=64k count=${2:-64} conv=fsync 2>/dev/null; }

# load NAME ROUND NODE: every second, what the device has completed.
load() {
    local counts=/sys/block/$(basename "$(readlink -f $3)")/stat second fio
    fio --name=c --filename=$3 --rw=randwrite --bs=4k --direct=1 --ioengine=io_uring --iodepth=32 --norandommap \
        --randrepeat=0 --time_based --runtime=$((SECONDS_EACH + 30)) >/tmp/fio.log 2>&1 &
    fio=$!
    sleep 1
    for second in $(seq 0 $SECONDS_EACH); do
        echo "$(cat /proc/uptime) $(cat $counts) $(head -n 1 /proc/stat)"
        sleep 1
    done >/tmp/seconds
    kill -0 $fio 2>/dev/null || { cat /tmp/fio.log; fail "fio ended"; }
    kill $fio
    wait $fio 2>/dev/null
    # Field 1 is the time, 7 the writes completed; behind "cpu" are the times of the processors, of which the fourth and fifth
    # are those of idling.
    awk -v counted=$COUNTED -v name=$1 -v round=$2 '
        { at[NR] = $1; done[NR] = $7; busy[NR] = 0; all[NR] = 0
          for (f = 1; f <= NF; f++) if ($f == "cpu") { for (i = f + 1; i <= f + 8; i++) { all[NR] += $i; if (i != f + 4 && i != f + 5) busy[NR] += $i } } }
        END {
            from = NR - counted
            for (i = from + 1; i <= NR; i++) { r = (done[i] - done[i - 1]) / (at[i] - at[i - 1]); if (i == from + 1 || r < low) low = r }
            printf "cliff %s %d %.1f %.1f %.1f %d\n", name, round, (done[NR] - done[from]) / (at[NR] - at[from]),
                (done[4] - done[1]) / (at[4] - at[1]), low, 100 * (busy[NR] - busy[from]) / (all[NR] - all[from])
        }' /tmp/seconds
}

gone() { ! [ -e "$1" ]; }

disk() { load disk $1 /dev/vda; }

loligo_() {
    serve --name vol --cache /dev/ram0 --core /dev/vda --mode wb --listen ublk:vol --create --force
    load loligo $1 /dev/loligo/vol
    # What is dirty is of no use to anybody.
    killed
    serve --name vol --cache /dev/ram0 --core /dev/vda --mode wb --listen ublk:vol
    stopped
}

bcache() {
    wipe /dev/vda
    # It wants 1024 buckets.
    must make-bcache --wipe-bcache --bucket $((SIZE / 4096 / 1024))k --writeback -C /dev/ram0 -B /dev/vda
    within 5 test -e /sys/fs/bcache/register_quiet
    echo /dev/ram0 >/sys/fs/bcache/register_quiet
    echo /dev/vda >/sys/fs/bcache/register_quiet
    within 10 test -d /sys/block/bcache0/bcache/cache
    local set=$(echo /sys/fs/bcache/*-*-*-*-*)
    # Nothing is to go past it.
    echo 0 >/sys/block/bcache0/bcache/sequential_cutoff
    echo 0 >$set/congested_read_threshold_us
    echo 0 >$set/congested_write_threshold_us
    grep -q '\[writeback\]' /sys/block/bcache0/bcache/cache_mode || fail "bcache does not write back"
    load bcache $1 /dev/bcache0
    # Its device goes with the set, sometimes at once.
    echo 1 >$set/stop
    [ ! -e /sys/block/bcache0/bcache/stop ] || echo 1 >/sys/block/bcache0/bcache/stop
    within 60 gone /sys/block/bcache0
    within 60 gone $set
}

writecache() {
    must dmsetup create wc --noudevsync --table "0 $SECTORS writecache s /dev/vda /dev/ram0 4096 0"
    load dm-writecache $1 /dev/dm-0
    must dmsetup remove --noudevsync wc
}

dmcache() {
    must dmsetup create dc --noudevsync --table "0 $SECTORS cache /dev/ram1 /dev/ram0 /dev/vda 64 1 writeback smq 0"
    load dm-cache $1 /dev/dm-0
    must dmsetup remove --noudevsync dc
}

for round in $(seq $ROUNDS); do
    for system in loligo_ bcache writecache dmcache disk; do
        wipe /dev/ram0; wipe /dev/ram1
        $system $round
    done
done
