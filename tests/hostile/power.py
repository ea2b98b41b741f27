"""Power cuts under load: the broker on a real file system, on a disk that loses what was not flushed (`power_disk`)."""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

import broker as brokers
from load import Load

HERE = os.path.dirname(os.path.abspath(__file__))
# Of all rounds together.
SECONDS = int(os.environ.get("POWER_SECONDS", 30))
SEED = 20261122
# Sparse: what the broker keeps in that time, and room for compaction.
DISK_BYTES = 3 << 30
# What a cut leaves of the writes that were not flushed: the probability of each block, and its size.
CUTS = ((0, 4096), (0.5, 512), (0.9, 4096), (0.5, 1 << 20), (1, 4096))
# The journal writes past the page cache on the first, and through it on the second, whose sectors are too large for its groups.
SECTORS = (512, 4096)


def lacking():
    """What this machine lacks for the test, by name; None if nothing."""
    for tool in ("mkfs.ext4", "losetup", "mount", "umount"):
        if not shutil.which(tool):
            return f"no {tool}"
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not os.path.exists(device):
            return f"no {device}"
    return None if os.geteuid() == 0 else "not root: no file system may be mounted"


def tool(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr.strip()}"
    return done.stdout.strip()


class Machine:
    """A disk that can lose its power, a loop device on it, and a file system on that."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="postroad-hostile-power.")
        self.disk, self.files = self.path("disk"), self.path("files")
        self.device = None
        image = self.path("flushed")
        with open(image, "wb") as out:
            out.truncate(DISK_BYTES)
        tool("mkfs.ext4", "-q", "-F", image)
        tool("cp", "--sparse=always", image, self.path("cached"))
        command = [sys.executable, os.path.join(HERE, "power_disk.py"), self.folder, self.disk, str(DISK_BYTES)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "mounted\n", "the FUSE file system of the disk could not be mounted"

    def path(self, name):
        path = os.path.join(self.folder, name)
        if name in ("disk", "files"):
            os.mkdir(path)
        return path

    def say(self, words):
        """Tells the disk; its answer."""
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def mount(self, sector):
        image = os.path.join(self.disk, "disk")
        self.device = tool("losetup", "--sector-size", str(sector), "--find", "--show", image)
        tool("mount", "-t", "ext4", self.device, self.files)

    def unmount(self):
        if self.device:
            tool("umount", self.files)
            tool("losetup", "-d", self.device)
        self.device = None

    def end(self):
        try:
            self.unmount()
        finally:
            self.process.stdin.close()
            subprocess.run(["umount", "-l", self.disk], capture_output=True)
            self.process.wait(10)
            shutil.rmtree(self.folder, ignore_errors=True)


def written(machine):
    """The number of the last checkpoint, and how many compacted segments there are."""
    names = os.listdir(os.path.join(machine.files, "data"))
    checkpoints = [int(name.split(".")[0], 16) for name in names if name.endswith(".checkpoint")]
    return max(checkpoints, default=0), sum(name.endswith(".compacted") for name in names)


def cut(machine, broker, load, keep, block, sector, seed):
    """The power goes and comes again; what the disk said of it."""
    load.up.clear()
    gone = machine.say("cut")
    broker.kill()
    machine.unmount()
    there = machine.say(f"on {keep} {block} {seed}")
    machine.mount(sector)
    broker.must_start()
    load.up.set()
    return gone, there


def under_load(machine, broker):
    chance, load = random.Random(SEED), Load(broker.must_start())
    load.start()
    rounds, checkpoints, compacted, until = 0, 0, 0, time.monotonic() + SECONDS
    # On a slow machine it takes longer until there is a checkpoint.
    while time.monotonic() < (until if checkpoints else until + 3 * SECONDS) and not load.failures:
        time.sleep(chance.uniform(0.3, 4))
        found = written(machine)
        checkpoints, compacted = max(checkpoints, found[0]), max(compacted, found[1])
        keep, block = CUTS[rounds % len(CUTS)]
        rounds += 1
        cut(machine, broker, load, keep, block, SECTORS[rounds % len(SECTORS)], chance.getrandbits(32))
    load.stop()
    note = load.verify()
    assert checkpoints, "no checkpoint: too little load"
    return f"{rounds} cuts, {checkpoints} checkpoints, {compacted} compacted segments at most, {note}"


def lies(machine, broker):
    """The test of the test: it does find what is lost."""
    load = Load(broker.must_start())
    load.start()
    time.sleep(1.5)
    machine.say("lie")
    time.sleep(1.5)
    cut(machine, broker, load, 0, 4096, 512, SEED)
    load.stop()
    try:
        load.verify()
    except AssertionError as found:
        assert "acknowledged messages are lost" in str(found), found
        return f"{found}"
    raise AssertionError("nothing was found")


def run(binary, report, only=None):
    for title, act in (
        (f"cut again and again for {SECONDS} s under load: nothing confirmed is lost or comes again", under_load),
        ("a disk that only says that it flushes is found out", lies),
    ):
        if only and only not in act.__name__:
            continue
        title = f"power loss: {title}"
        if why := lacking():
            report(title, why, 0)
            continue
        started, machine, broker = time.monotonic(), None, None
        try:
            machine = Machine()
            machine.mount(SECTORS[0])
            broker = brokers.new(binary, data=os.path.join(machine.files, "data"))
            note = act(machine, broker)
            broker.check()
            report(title, None, time.monotonic() - started, note)
        except Exception as error:
            report(title, error, time.monotonic() - started)
        finally:
            if broker:
                broker.kill()
            if machine:
                machine.end()
