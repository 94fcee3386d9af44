# What a ublk device of a volume costs beyond the transport itself.
modprobe ublk_drv
must loligo bench ublk --seconds $SECONDS_EACH --rounds $ROUNDS --markdown
cat /run/must.log
[ -z "$(ls /dev/ublkb* 2>/dev/null)$(ls -A /dev/loligo)" ] || fail "something is left"
