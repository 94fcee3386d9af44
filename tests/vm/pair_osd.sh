# An OSD on one path to a LUN, frozen with writes under way, started on the other path, and thawed: once with the fence of the agents
# between, and then without.
OBJECTS=200
PGS=8
# Rounds without the fence, of which one must do harm.
ROUNDS=4
FOLDER=/var/lib/ceph/osd
export DEVICE=vda

# side LETTER: the OSD's folder on that controller, and its path to the LUN.
side() {
    dir=$FOLDER/$1
    case $1 in a) lun=/dev/sda ;; b) lun=/dev/sdb ;; esac
}

made() {
    local uuid=$(cat /proc/sys/kernel/random/uuid) dir lun
    side a
    must mkdir -p $dir
    must ceph osd new $uuid 0
    must ceph auth get-or-create osd.0 mon 'allow profile osd' osd 'allow *' mgr 'allow profile osd' -o $dir/keyring
    must ln -s $lun $dir/block
    echo $uuid >$dir/fsid
    must ceph-osd -i 0 --mkfs --osd-uuid $uuid --osd-data $dir --log-file /var/log/ceph/mkfs.log
    must cp -a $dir $FOLDER/b
    side b
    must ln -sfn $lun $dir/block
}

# started LETTER: the OSD there, as $osd. What this host's page cache has of the LUN by that path is old.
started() {
    local dir lun
    side $1
    blockdev --flushbufs $lun
    rm -f /run/ceph/osd-$1.asok
    ceph-osd -f -i 0 --osd-data $dir --keyring $dir/keyring --log-file /var/log/ceph/osd-$1.log \
        --admin-socket /run/ceph/osd-$1.asok --bluefs_buffered_io=false >/run/vm/osd-$1.out 2>&1 &
    osd=$!
}

last() { awk '$1 == "acked" { n = $2 } END { print n + 0 }' /run/vm/acked; }
further() { [ "$(last)" -gt $1 ]; }
gone() { ! kill -0 $1; }

# moved FENCE: the OSD goes from A to B under load, and A is thawed. $a and $b are the processes, $writer is the client.
moved() {
    started a
    a=$osd
    within 300 up 0
    # The pool is there after the first.
    ceph osd pool ls | grep -qx p || must ceph osd pool create p $PGS $PGS
    within 120 sh -c "timeout 20 rados -p p ls"
    python3 /run/vm/objects.py write p $OBJECTS $((written + 1)) 8 >/run/vm/acked 2>&1 &
    writer=$!
    within 120 grep -q acked /run/vm/acked
    sleep 10
    kill -STOP $a
    [ $1 = unfenced ] || fence-step take /dev/sdb 0xb 0xa || fail "the LUN is not taken"
    must ceph osd down 0
    local before=$(last)
    started b
    b=$osd
    within 300 further $((before + 16))
    sleep 5
    echo "$1: taken over, $(last) writes acknowledged"
    kill -CONT $a
}

# ended: the client has all its answers.
ended() {
    kill $writer
    wait $writer || { cat /run/vm/acked; fail "the client failed"; }
    written=$(last)
}

mkdir -p /etc/ceph
monitor_made
ceph-mon -i a --setuser ceph --setgroup ceph || fail "the monitor"
within 120 answers
made
written=0

echo "with the fence"
must fence-step hold /dev/sda 0xa 0xb
must fence-step join /dev/sdb 0xb 0xa
moved fenced
t=$(now)
within 120 gone $a
echo "the thawed one has ended after $(($(now) - t)) ms"
grep -qE "Invalid exchange|\(52\)|=-52|error -52" /var/log/ceph/osd-a.log /run/vm/osd-a.out ||
    { tail -n 20 /var/log/ceph/osd-a.log; fail "the thawed OSD did not end for the array's refusal"; }
sleep 5
kill -0 $b || { tail -n 20 /var/log/ceph/osd-b.log; fail "the OSD that took over has ended"; }
ended
python3 /run/vm/objects.py check p $OBJECTS $written || fail "an object is not as it was acknowledged"
scrubbed p $PGS
kill $b
within 120 gone $b
mv $FOLDER/b $FOLDER/ceph-0
whole 0
mv $FOLDER/ceph-0 $FOLDER/b
echo "ok: fenced, thawed and aborted, $written writes"

echo "without the fence"
must fence-step leave /dev/sdb 0xb 0xa
# harm: what a round without the fence has done, in words; nothing: no harm is seen.
harm() {
    local dir lun
    gone $b && { echo "the OSD that took over has ended"; return; }
    # As both controllers would end in a power cut: what is acknowledged is on the array.
    kill -9 $writer $a $b 2>/dev/null
    wait $writer $a $b 2>/dev/null
    side b
    blockdev --flushbufs $lun
    ceph-bluestore-tool fsck --deep 1 --path $dir >/run/vm/fsck 2>&1 || { echo "fsck: $(tail -n 1 /run/vm/fsck)"; return; }
    started b
    b=$osd
    within 300 sh -c "! kill -0 $b || timeout 20 ceph --connect-timeout 10 tell osd.0 version"
    gone $b && { echo "the OSD does not start again"; return; }
    timeout 200 python3 /run/vm/objects.py check p $OBJECTS $(last) >/run/vm/check 2>&1 || tail -n 1 /run/vm/check
    kill $b
    wait $b
}
for round in $(seq $ROUNDS); do
    moved unfenced
    sleep 15
    seen=$(harm 2>/dev/null)
    written=$(last)
    echo "round $round without the fence: ${seen:-no harm is seen}"
    [ -z "$seen" ] || break
done
[ -n "$seen" ] || fail "without the fence nothing was lost in $ROUNDS rounds: the test shows nothing"
echo "ok: without the fence it is seen to be lost"
kill -9 $a $b $writer 2>/dev/null || true
