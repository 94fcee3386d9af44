# Values of network interfaces with a driver that takes the link down for them: e1000e, two of them on one wire. The second is in a
# namespace of its own, as another host.

# order KEY [VALUE [TRIAL]]: carries an order out; its answer is in /run/said.
order() {
    local put=null trial=
    [ -z "${2-}" ] || put="{\"now\":\"$2\"}"
    [ -z "${3-}" ] || trial=",\"trial\":$3"
    echo "{\"target\":\"nic\",\"key\":\"$1\",\"conf\":\"\",\"put\":$put$trial}" | loligo tune on-host >/run/said ||
        { cat /run/said; fail "no answer"; }
}

# word NAME: a text of the answer.
word() { tr -d '\n' </run/said | sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p"; }

# is KEY VALUE
is() {
    order $1
    same $1 "$2" "$(word now)"
}

# put KEY VALUE [TRIAL]: it stays.
put() {
    order "$@"
    grep -q '"Ok"' /run/said || { cat /run/said; fail "$1 does not take $2"; }
    is $1 $2
}

# left TEXT KEY VALUE [TRIAL]: it is refused, or taken back.
left() {
    local text=$1
    shift
    order "$@"
    grep -q '"Err".*'"$text" /run/said || { cat /run/said; fail "$1 $2: no '$text'"; }
}

losses() { cat /sys/class/net/eth0/carrier_down_count; }
carries() { [ "$(cat /sys/class/net/eth0/carrier)" = 1 ]; }
peer() { nsenter -t $peer -n "$@"; }
# whole SIZE: packets that pass to the other host.
whole() { echo "[{\"address\":\"10.77.0.2\",\"size\":$1}]"; }

modprobe e1000e || fail "no e1000e"
within 20 [ -d /sys/class/net/eth1 ]
unshare -n sleep 1000 &
peer=$!
within 10 sh -c "[ \$(readlink /proc/$peer/ns/net) != \$(readlink /proc/self/ns/net) ]"
must ip link set eth1 netns $peer
must peer ip addr add 10.77.0.2/24 dev eth1
must peer ip link set eth1 up
must ip addr add 10.77.0.1/24 dev eth0
must ip link set eth0 up
ip link set lo up
within 30 ping -c 1 -W 1 10.77.0.2

order eth0/rings.rx
same "its identity" 52:54:00:00:00:10 "$(word nic)"
is eth0/rings.rx 256
before=$(losses)
put eth0/rings.rx 4096 '[]'
[ $(losses) -gt $before ] || fail "the driver did not take the link down"
carries || fail "the link is not waited for"
echo "ok: a ring is set, and the link is back"

is eth0/rx_usecs 3
put eth0/rx_usecs 20 '[]'
left "takes no\|refuses" eth0/rx_usecs 8 '[]'
is eth0/rx_usecs 20
is eth0/rings.rx 4096
put eth0/rx_usecs 3
is eth0/adaptive_rx false
left "driver does not know this" eth0/adaptive_rx true '[]'
is eth0/adaptive_rx false
echo "ok: coalescing is set, and what the driver refuses leaves all as it was"

left "do not come to 10.77.0.2 whole.*It is 1500 again" eth0/mtu 9000 "$(whole 9000)"
is eth0/mtu 1500
carries || fail "the link is down"
is eth0/rings.rx 4096
must peer ip link set eth1 mtu 9000
within 30 ping -c 1 -W 1 10.77.0.2
put eth0/mtu 9000 "$(whole 9000)"
echo "ok: an MTU stays once packets of its size pass"

modprobe 8021q || fail "no VLANs"
must vconfig add eth0 5
is eth0.5/mtu 9000
same "its identity" "vlan on 52:54:00:00:00:10" "$(word nic)"
left "eth0.5 lies on eth0, and has an MTU of 9000" eth0/mtu 1500
is eth0/mtu 9000
put eth0.5/mtu 1500
put eth0/mtu 1500
left "eth0.5 lies on eth0, whose MTU is 1500" eth0.5/mtu 9000 '[]'
put eth0/rings.rx 256
echo "ok: a VLAN goes with its parent"

modprobe dummy numdummies=2 || fail "no dummies"
modprobe bonding max_bonds=0 || fail "no bonds"
echo +bond0 >/sys/class/net/bonding_masters
for port in dummy0 dummy1; do
    echo +$port >/sys/class/net/bond0/bonding/slaves || fail "no port"
done
ip link set bond0 up
ip link set dummy0 mtu 9000
order bond0/mtu
same "the order of ports" "dummy1/mtu dummy0/mtu bond0/mtu" "$(sed -n 's/.*"key": "\(.*\)".*/\1/p' /run/said | tr '\n' ' ' | sed 's/ $//')"
put dummy1/mtu 9000 '[]'
put bond0/mtu 9000 '[]'
put bond0/mtu 1500
put dummy1/mtu 1500
is dummy0/mtu 9000
echo "ok: ports of a bond come back one by one"
