# A systemd of its own, in name spaces of its own: no mount, process or control group of it is seen outside.
# $1: a folder with units. The host has two nodes there, with a CPU each that is online.
set -e
group=$(findmnt -t cgroup2 -n -o TARGET | head -n 1)/loligo-test-$$
mkdir "$group"
echo $$ >"$group/cgroup.procs"
exec unshare --mount --pid --fork --cgroup --kill-child --propagation private sh -ec '
    mount -t proc proc /proc
    umount -R /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    mount -t tmpfs tmpfs /run
    mkdir -p /run/etc/upper /run/etc/work /run/node/node0 /run/node/node1
    mount -t overlay -o lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work overlay /etc
    rm -rf /etc/systemd/system/* /etc/loligo
    cp "$1"/* /etc/systemd/system/
    echo 0-1 >/run/node/online
    echo 0,100-120 >/run/node/node0/cpulist
    echo 1,200-220 >/run/node/node1/cpulist
    mount --bind /run/node /sys/devices/system/node
    exec env -i PATH="$PATH" container=other SYSTEMD_UNIT_PATH=/etc/systemd/system \
        /lib/systemd/systemd --system --log-target=null --unit=only.target
' sh "$1"
