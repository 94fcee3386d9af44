# One life of a machine whose power goes: says what is there, then writes and syncs, and says so, until it is cut off.
# /dev/vda is the cache, /dev/vdb the core; FIRST is the first number to write, 0 where nothing is to be written.
modprobe ublk_drv
D=/dev/loligo/vol
SLOTS=24
serve --name vol --cache /dev/vda --core /dev/vdb --mode wb --listen ublk:vol
for slot in $(seq 0 $((SLOTS - 1))); do
    # 4096 times the same number, or it is torn; nothing but zeros, as in a new volume, is 0.
    lines=$(dd if=$D bs=64k skip=$slot count=1 2>/dev/null | tr -d '\0' | sort | uniq -c | sed 's/^ *//; s/ 0*/ /')
    case $lines in "") found=0 ;; *[!0-9\ ]*) found=torn ;; "4096 "*) found=${lines#* } ;; *) found=torn ;; esac
    echo "slot $slot $found"
done
echo checked
[ $FIRST -gt 0 ] || exit 0
i=$FIRST
while :; do
    # The line's length divides the slot's.
    yes "$(printf %015d $i)" | head -c 65536 >/tmp/slot
    if [ $((i % 2)) = 0 ]; then
        dd if=/tmp/slot of=$D bs=64k seek=$((i % SLOTS)) count=1 conv=notrunc,fsync 2>/dev/null || exit 1
    else
        dd if=/tmp/slot of=$D bs=64k seek=$((i % SLOTS)) count=1 oflag=direct conv=notrunc,fsync 2>/dev/null || exit 1
    fi
    echo "synced $i"
    i=$((i + 1))
done
