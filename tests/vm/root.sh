# The machine has a whole system on its last disk, ROOT. Where BOOTS is 1 systemd takes over, and the script is a service of its;
# else the script runs in that system's folders, and nothing else does.
modprobe ext4
mkdir -p /system
mount -t ext4 $ROOT /system || { echo "=== exit 97"; poweroff -f; }
# One that was unpacked alone has no shell and little else.
[ -e /system/bin/sh ] || chroot /system /bin/busybox --install -s /usr/bin 2>/dev/null
mkdir -p /run/vm
cp -r /script.sh /lib/prelude.sh /files/* /run/vm
cat >/run/vm/run <<'END'
#!/bin/sh
# Each of its own: the script may be one that never ends.
. /run/vm/prelude.sh
( . /run/vm/script.sh )
echo "=== exit $?"
[ ! -e /run/vm/poweroff ] || systemctl --no-block poweroff
END
chmod +x /run/vm/run
# Devices that this system's own programs make, not that system's.
if [ -e /run/vm/before.sh ]; then
    ( . /lib/prelude.sh; . /run/vm/before.sh ) || { echo "=== exit 95"; poweroff -f; }
fi
for place in dev proc sys run; do mount --rbind /$place /system/$place; done
if [ -e /run/vm/loligo.deb ]; then
    # By its whole path, for busybox has a dpkg of its own.
    [ -e /system/usr/bin/loligo ] || chroot /system /usr/bin/dpkg -i /run/vm/loligo.deb >/run/dpkg.log 2>&1 ||
        { cat /run/dpkg.log; echo "=== exit 96"; }
else
    cp /bin/loligo /system/usr/bin
fi
for program in /bin/fence-*; do [ ! -e $program ] || cp $program /system/usr/bin; done
if [ $BOOTS = 0 ]; then
    mount -t tmpfs none /system/tmp
    # An OSD takes its place in the cluster's map from the host's name.
    hostname vm
    ifconfig lo up
    modprobe ublk_drv
    chroot /system /run/vm/run
    umount /system/tmp
    sync
    sleep 0.2
    poweroff -f
fi
units=/run/systemd/system
mkdir -p $units/multi-user.target.wants
cat >$units/vm.service <<'END'
[Unit]
Description=What the machine is for
[Service]
ExecStart=/run/vm/run
StandardOutput=file:/dev/hvc0
StandardError=file:/dev/hvc0
END
cp /run/vm/units/* $units 2>/dev/null
for unit in $units/*.service; do ln -s $unit $units/multi-user.target.wants; done
for place in dev proc sys; do umount -l /system/$place; done
mount --move /dev /system/dev
mount --move /proc /system/proc
mount --move /sys /system/sys
umount -l /system/run
mount --move /run /system/run
exec switch_root /system /sbin/init </system/dev/ttyS0 >/system/dev/ttyS0 2>&1
