# The LUN of the OSD, /dev/vda, by two paths: /dev/sda and /dev/sdb.
ifconfig lo up
target /dev/vda loligo-osd
path 1
path 2
