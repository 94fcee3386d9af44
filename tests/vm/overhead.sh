# What a ublk device of a volume costs beyond the transport itself.
modprobe ublk_drv
must loligo bench ublk --seconds $SECONDS_EACH --rounds $ROUNDS --markdown
cat /run/must.log
[ -z "$(ls /dev/ublkb* /dev/loligo 2>/dev/null)" ] || fail "something is left"
