# A cluster of packaged units.
[ -d /run/systemd/system ] || fail "this is not systemd"

# begun: the monitor and loligod are there, and will be after a boot.
begun() {
    monitor_made
    must systemctl enable --now ceph-mon@a
    within 120 answers
    must systemctl enable --now loligod
}

# once ID: the OSD did not have to be started again.
once() {
    local again=$(systemctl show -p NRestarts --value ceph-osd@$1)
    [ "$again" = 0 ] || {
        journalctl -b -o short-monotonic -u "ceph-osd@$1" -u loligod | tail -n 60
        fail "ceph-osd@$1 was started again $again times"
    }
}

# told UNIT WORD: when systemd said that last of it in the boot before, in microseconds.
told() {
    journalctl -b -1 -o short-monotonic _PID=1 UNIT=$1.service | grep " $2 " | tail -n 1 | tr -d '[.' | awk '{ print $1 + 0 }'
}

# ended FIRST SECOND: in the boot before, the one had stopped before the other was asked to.
ended() {
    local first=$(told $1 Stopped) second=$(told $2 Stopping)
    [ "${first:-0}" -gt 0 ] && [ "${second:-0}" -ge "$first" ] || {
        journalctl -b -1 -o short-monotonic _PID=1 | grep -E "Stop|Deactiv" | tail -n 60
        fail "at the shutdown $1 had stopped at ${first:-never} us, and $2 was asked to at ${second:-never} us"
    }
    echo "ok: at the shutdown $1 had stopped $(((second - first) / 1000)) ms before $2 was asked to"
}
