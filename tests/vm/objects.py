# A client of the cluster that can tell what it was promised: objects.py write POOL OBJECTS FIRST DEPTH, or check POOL OBJECTS LAST.
#
# The writes are numbered from FIRST on; write I replaces object I mod OBJECTS by content that I alone gives. With /run/vm/mark there, the
# writer says how it fared since the last mark: slowest write, longest time in which the block device $DEVICE (ublkb0) had requests and answered
# none, writes. Every so often it says up to which number all are acknowledged. SIGTERM ends it.
import hashlib, os, signal, sys, threading, time
import rados

MARK = "/run/vm/mark"


def content(i):
    head = b"%016d" % i
    return head + hashlib.shake_128(head).digest(4096 * (1 + i * 7 % 16) - 16)


def say(text):
    print(text, flush=True)


class Device:
    """The longest time in which the device had requests and answered none."""

    def __init__(self, name):
        self.at, self.longest, self.done, self.since = "/sys/block/%s/" % name, 0.0, None, time.monotonic()
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while True:
            f = open(self.at + "stat").read().split()
            done, waits, now = int(f[0]) + int(f[4]), int(f[8]), time.monotonic()
            if done != self.done or not waits:
                self.done, self.since = done, now
            self.longest = max(self.longest, now - self.since)
            time.sleep(0.02)

    def mark(self):
        longest, self.longest = self.longest, 0.0
        return longest


def write(io, objects, first, depth):
    lock, changed = threading.Lock(), threading.Condition()
    waiting, slowest, count, device, ended = {}, 0.0, 0, Device(os.environ.get("DEVICE", "ublkb0")), []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(1))

    def answered(i, began):
        def call(c):
            nonlocal slowest, count
            with changed:
                if c.get_return_value() != 0:
                    say("FAILED: write %d: error %d" % (i, c.get_return_value()))
                    os._exit(1)
                slowest, count = max(slowest, time.monotonic() - began), count + 1
                del waiting[i]
                changed.notify()
        return call

    i, told = first, time.monotonic()
    while True:
        with changed:
            changed.wait_for(lambda: len(waiting) < (1 if ended else depth), 0.2)
            room, acked = len(waiting) < depth, min(waiting, default=i) - 1
            if os.path.exists(MARK):
                with open(MARK + ".said", "w") as f:
                    f.write("%d %d %d\n" % (slowest * 1000, device.mark() * 1000, count))
                slowest, count = 0.0, 0
                os.unlink(MARK)
            if ended and not waiting:
                break
        if time.monotonic() - told > 1:
            told = time.monotonic()
            say("acked %d" % acked)
        if room and not ended:
            with changed:
                waiting[i] = 1
            io.aio_write_full("o%d" % (i % objects), content(i), oncomplete=answered(i, time.monotonic()))
            i += 1
    say("acked %d" % (i - 1))


def check(io, objects, last):
    newer = 0
    for o in range(objects):
        least = last - (last - o) % objects
        if least < 1:
            continue
        found = io.read("o%d" % o, 1 << 17)
        i = int(found[:16])
        if i < least or i % objects != o or found != content(i):
            say("FAILED: object %d: number %d of %d bytes, and %d was acknowledged" % (o, i, len(found), least))
            sys.exit(1)
        newer += i > least
    say("ok: %d objects are as acknowledged up to %d, %d of them newer" % (min(objects, last), last, newer))


what, pool, objects, number = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
cluster = rados.Rados(conffile="/etc/ceph/ceph.conf")
cluster.connect(timeout=60)
io = cluster.open_ioctx(pool)
if what == "write":
    write(io, objects, number, int(sys.argv[5]))
else:
    check(io, objects, number)
os._exit(0)
