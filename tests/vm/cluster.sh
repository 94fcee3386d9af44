# A cluster of one monitor in this machine, with the packages' own places and names, and no OSD yet.

# monitor_made: its store and everybody's keys.
monitor_made() {
    local fsid=5c3a6a3e-0b0f-4f0e-9d3c-6c6f6c69676f keys=/run/vm/mon.keyring map=/run/vm/monmap
    cat >/etc/ceph/ceph.conf <<END
[global]
fsid = $fsid
mon_initial_members = a
mon_host = [v2:127.0.0.1:3300,v1:127.0.0.1:6789]
ms_bind_ipv6 = false
osd_crush_chooseleaf_type = 0
osd_pool_default_size = 1
osd_pool_default_min_size = 1
mon_allow_pool_size_one = true
osd_scrub_load_threshold = 1000
osd_scrub_backoff_ratio = 0
osd_max_scrubs = 4
mon_data_avail_warn = 1
mon_data_avail_crit = 1
[osd]
osd_memory_target = 939524096
osd_memory_cache_min = 33554432
END
    must ceph-authtool -C $keys --gen-key -n mon. --cap mon 'allow *'
    must ceph-authtool -C /etc/ceph/ceph.client.admin.keyring --gen-key -n client.admin \
        --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *'
    must ceph-authtool $keys --import-keyring /etc/ceph/ceph.client.admin.keyring
    must monmaptool --create --clobber --fsid $fsid --addv a '[v2:127.0.0.1:3300,v1:127.0.0.1:6789]' $map
    chown ceph:ceph $keys $map
    install -d -o ceph -g ceph /var/lib/ceph/mon/ceph-a /run/ceph
    must ceph-mon --mkfs -i a --monmap $map --keyring $keys --setuser ceph --setgroup ceph
}

answers() { ceph --connect-timeout 10 mon stat; }
# up ID: the OSD answers. What the monitor says of it may be from before a shutdown.
up() { timeout 20 ceph --connect-timeout 10 tell "osd.$1" version; }

# value FIELD: of the JSON that comes in, the first of that name.
value() { grep -o "\"$1\": *[^,}]*" | head -n 1 | sed 's/^[^:]*: *//; s/"//g'; }

# scrubbed POOL PGS: every placement group of it was deep-scrubbed just now, and nothing was found.
scrubbed() {
    local pg=0 id pgid
    ceph osd pool ls detail >/run/vm/pools
    id=$(awk -v pool="'$1'" '$1 == "pool" && $3 == pool { print $2 }' /run/vm/pools)
    while [ $pg -lt $2 ]; do
        pgid=$id.$(printf %x $pg)
        # There is no manager to ask for one: the first makes a deep one due, the second a scrub.
        must ceph tell $pgid deep_scrub
        must ceph tell $pgid scrub
        pg=$((pg + 1))
    done
    pg=0
    while [ $pg -lt $2 ]; do
        pgid=$id.$(printf %x $pg)
        within 240 grep -qE " $pgid deep-scrub (ok|[0-9])" /var/log/ceph/ceph.log
        ceph tell $pgid query >/run/vm/query
        same "errors of $pgid" 0 "$(value num_scrub_errors </run/vm/query)"
        grep " $pgid deep-scrub" /var/log/ceph/ceph.log | grep -qv " ok\| starts" &&
            { grep deep-scrub /var/log/ceph/ceph.log; fail "the deep scrub of $pgid found something"; }
        echo "pg $pgid state $(value state </run/vm/query) objects $(value num_objects </run/vm/query) deep-scrub ok"
        pg=$((pg + 1))
    done
}

# whole ID: its store, while the OSD is not running.
whole() {
    ceph-bluestore-tool fsck --deep 1 --path /var/lib/ceph/osd/ceph-$1 >/run/vm/fsck 2>&1 &&
        grep -q success /run/vm/fsck || { cat /run/vm/fsck; fail "fsck"; }
    echo "ok: ceph-bluestore-tool fsck --deep: $(tail -n 1 /run/vm/fsck)"
}
