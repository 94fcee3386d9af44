# What every script of the virtual machine may use.

fail() {
    echo "FAILED: $*"
    [ -f /run/serve.log ] && tail -n 15 /run/serve.log
    dmesg | tail -n 12
    exit 1
}

# must COMMAND...: its output only where it fails.
must() {
    "$@" >/run/must.log 2>&1 || { cat /run/must.log; fail "$*"; }
}

# refused TEXT COMMAND...: the command fails, and says TEXT.
refused() {
    local text=$1
    shift
    "$@" >/run/refused.log 2>&1 && fail "not refused: $*"
    grep -q "$text" /run/refused.log || { cat /run/refused.log; fail "refused without '$text': $*"; }
}

# same WHAT EXPECTED FOUND
same() { [ "$2" = "$3" ] || fail "$1: expected '$2', found '$3'"; }

# within SECONDS COMMAND...: waits until it succeeds.
within() {
    local end=$(($(now) + $1 * 1000))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $(now) -lt $end ] || fail "not in time: $*"
        sleep 0.05
    done
}

# Milliseconds since the boot.
now() { awk '{ printf "%d\n", $1 * 1000 }' /proc/uptime; }

# serve ARGUMENT...: the service in the background, as $served, once it is ready.
serve() { launched serve "$@"; }

# daemon: loligod likewise, by its usual file.
daemon() { launched daemon --config /etc/loligo/loligod.toml; }

launched() {
    rm -f /run/ready
    mkfifo /run/ready
    loligo "$@" >/run/ready 2>>/run/serve.log &
    served=$!
    local line=
    read -r line </run/ready
    [ "$line" = ready ] || { wait $served; fail "loligo $*: status $?"; }
}

# killed: ends the service as a crash would, and waits until it is gone.
killed() {
    kill -9 $served
    wait $served 2>/dev/null
}

# stopped: ends it as an administrator would.
stopped() {
    kill $served
    wait $served || fail "the service ended with status $?"
}

# figure VOLUME NAME: a number of its statistics; of a histogram, how many it counts.
figure() {
    loligo stats --json "$1" | awk -v name="\"$2\":" '
        found { next }
        $1 == name && $2 == "{" { inside = 1; next }
        $1 == name || inside && $1 == "\"count\":" { gsub(/[^0-9.]/, "", $2); print $2; found = 1 }'
}

# queue NODE ATTRIBUTE
queue() { cat /sys/block/"$1"/queue/"$2"; }

# fio_ended: ends $fio, which was to go on until now, and found nothing wrong (its output: /tmp/fio.log and /tmp/fio.json).
fio_ended() {
    kill -INT $fio
    wait $fio
    # It calls a signal 128; what it found wrong it says, and counts.
    same "fio's status" 128 $?
    grep -i "verify\|error" /tmp/fio.log && fail "fio found something"
    awk '/"error"/ { n++; gsub(/[^0-9]/, "", $3); if ($3 != 0) bad = 1 } END { exit bad || !n }' /tmp/fio.json ||
        { cat /tmp/fio.json; fail "fio counts errors"; }
}
