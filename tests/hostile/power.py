"""Power cuts under load, and flushes that fail: the broker on a real file system, on a disk of the test's own (`power_disk`)."""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

import broker as brokers
import openwire as o
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
HARD, SOFT, VOLATILE = o.queue("failing.hard"), o.queue("failing.soft"), o.queue("failing.volatile")
# Without a journal ext4 outlives flushes that fail; with one it is read-only from then on.
UNJOURNALED = ("-O", "^has_journal")
# What is written is confirmed; with so long a time it is the sync of others that fails.
ASYNC = """[store]
async_sync_ms = 60000
[[policy]]
destination = "queue://failing.soft"
durability = "async"
"""
# How long a failing disk is watched, and how soon the broker has to go on when it is whole.
WATCHED_S, RESUME_S = 2, 20
# How often it fails under load: each time takes some seconds.
FAILURES = max(6, SECONDS // 4)
# How long a segment is made ready: while that goes on, it is what wakes the journal.
READY_S = 3


def lacking():
    """What this machine lacks for the test, by name; None if nothing."""
    for tool in ("mkfs.ext4", "e2fsck", "losetup", "mount", "umount"):
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

    def __init__(self, *options):
        """`options` of the file system."""
        self.folder = tempfile.mkdtemp(prefix="postroad-hostile-power.")
        self.disk, self.files = self.path("disk"), self.path("files")
        self.device = None
        image = self.path("flushed")
        with open(image, "wb") as out:
            out.truncate(DISK_BYTES)
        tool("mkfs.ext4", "-q", "-F", *options, image)
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

    def repair(self):
        """Makes a file system whole that has no journal to do so."""
        done = subprocess.run(["e2fsck", "-f", "-y", os.path.join(self.disk, "disk")], capture_output=True, text=True)
        assert done.returncode in (0, 1), f"e2fsck: {done.stdout[-500:]}{done.stderr[-500:]}"

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


def cut(machine, broker, load, keep, block, sector, seed, repair=lambda: None):
    """The power goes and comes again, and the file system is repaired; what the disk said of it."""
    load.up.clear()
    gone = machine.say("cut")
    broker.kill()
    machine.unmount()
    there = machine.say(f"on {keep} {block} {seed}")
    repair()
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


def fails_under_load(machine, broker):
    """They fail and succeed again; each third time the power is cut behind it."""
    chance, load, longest = random.Random(SEED), Load(broker.must_start()), 0
    load.start()
    for number in range(FAILURES):
        time.sleep(chance.uniform(0.5, 2))
        load.up.clear()
        machine.say("fail")
        time.sleep(chance.uniform(0.2, 1.5))
        machine.say("heal")
        healed = time.monotonic()
        while broker.ready()[0] != 200:
            assert time.monotonic() < healed + RESUME_S, f"not ready {RESUME_S} s after the disk is whole: {broker.ready()[1]}"
            time.sleep(0.1)
        longest = max(longest, time.monotonic() - healed)
        # By then all have heard who are refused.
        time.sleep(1)
        if number % 3 == 2:
            keep, block = CUTS[number % len(CUTS)]
            cut(machine, broker, load, keep, block, SECTORS[number // 3 % 2], chance.getrandbits(32), machine.repair)
        load.up.set()
    load.stop()
    return f"{FAILURES} times, ready after {longest:.1f} s at most, {load.verify()}"


class Waiting:
    """Commands without an answer yet, each with a name."""

    def __init__(self):
        self.commands, self.confirmed, self.refused = [], [], {}

    def add(self, name, client, number):
        self.commands.append((name, client, number))

    def look(self, seconds):
        """Takes answers for so long, or until there is one for each."""
        until = time.monotonic() + seconds
        while self.commands and time.monotonic() < until:
            for command in list(self.commands):
                name, client, number = command
                try:
                    client.answer(number, 0.02)
                    self.confirmed.append(name)
                except TimeoutError:
                    continue
                except o.Refused as refusal:
                    self.refused[name] = refusal
                self.commands.remove(command)


def commands_of(broker, waiting, delivery, reader):
    """Sends, an acknowledgement and a commit, each of a client of its own."""
    for number in range(6):
        client = o.Client(broker.port)
        waiting.add(f"send {number}", client, client.publish(HARD, f"refused {number}"))
    waiting.add("acknowledgement", reader, reader.ack(delivery))
    client = o.Client(broker.port)
    client.step(o.BEGIN, 1)
    transaction = client.transaction(1)
    client.publish(HARD, "refused in a transaction", wait=False, transaction=transaction)
    commit = {"connection_id": (120, {"value": client.name}), "transaction_id": transaction, "step": o.COMMIT}
    waiting.add("commit", client, client.push(o.TRANSACTION_INFO, True, **commit))


def failing_life(machine, broker, name, softly):
    """The flushes of the disk fail for a while: what has to be in each queue behind it, and a note.

    With `softly` there is something besides that is confirmed and not synced yet: it has to be saved before anything goes on.
    """
    sender, reader, soft, beside = (o.Client(broker.port) for _ in range(4))
    hard, softer = [f"{name} hard {number}" for number in range(40)], [f"{name} soft {number}" for number in range(9 * softly)]
    beside.send(VOLATILE, "first", persistent=False)
    for text in hard:
        sender.send(HARD, text)
    reader.consume(HARD, 21)
    for _ in range(20):
        reader.answer(reader.ack(reader.take()))
    delivery = reader.take()
    time.sleep(READY_S * softly)
    # Written and not synced: the sync that fails is theirs as well.
    for text in softer:
        soft.send(SOFT, text)
    assert broker.ready() == (200, "ready\n"), broker.ready()

    machine.say("fail")
    waiting = Waiting()
    commands_of(broker, waiting, delivery, reader)
    waiting.look(WATCHED_S)
    assert not waiting.confirmed, f"confirmed though no sync succeeds: {waiting.confirmed}"
    early = len(waiting.refused)
    beside.send(VOLATILE, "while it fails", persistent=False)
    assert broker.metric('postroad_journal_broken{store="main"}') == 1
    status, reason = broker.ready()
    assert status == 503 and "journal writes fail" in reason and "Input/output error" in reason, (status, reason)
    assert broker.http("/health/live")[0] == 200

    failed = int(machine.say("heal").split()[0])
    assert failed, "no flush has failed"
    healed = time.monotonic()
    waiting.look(RESUME_S)
    assert not waiting.commands, f"no answer {RESUME_S} s after the disk is whole: {[name for name, *_ in waiting.commands]}"
    assert not waiting.confirmed, f"confirmed though its sync failed: {waiting.confirmed}"
    for refusal in waiting.refused.values():
        assert refusal.java_class.endswith("ResourceAllocationException") and "Input/output error" in refusal.text, refusal
    sender.send(HARD, f"{name} behind it")
    took = time.monotonic() - healed
    assert broker.ready() == (200, "ready\n"), broker.ready()
    assert broker.metric('postroad_journal_broken{store="main"}') == 0
    note = f"{failed} flushes failed, {early} of {len(waiting.refused)} refused meanwhile, on after {took:.1f} s"
    return ((HARD, [*hard[20:], f"{name} behind it"]), (SOFT, softer)), note


def flushes_fail(machine, broker, softly=False):
    """Both ways to the disk; each time the power is cut behind it, and nothing is left that was not flushed."""
    notes = []
    broker.must_start()
    for sector in SECTORS:
        left, note = failing_life(machine, broker, f"sectors of {sector}:", softly)
        notes.append(note)
        machine.say("cut")
        broker.kill()
        machine.unmount()
        machine.say(f"on 0 4096 {SEED}")
        machine.repair()
        machine.mount(SECTORS[1])
        broker.must_start()
        for queue, want in left:
            got = [body.decode() for body, _ in brokers.drain(o.Client(broker.port), queue)]
            assert got == want, f"lost: {[text for text in want if text not in got]}, came: {[text for text in got if text not in want]}"
    return "; ".join(notes)


def flushes_fail_softly(machine, broker):
    return flushes_fail(machine, broker, True)


def run(binary, report, only=None):
    for title, act, options, extra in (
        (f"cut again and again for {SECONDS} s under load: nothing confirmed is lost or comes again", under_load, (), ""),
        ("a disk that only says that it flushes is found out", lies, (), ""),
        ("flushes fail for a while: nothing is confirmed meanwhile, nothing lost behind it, no restart", flushes_fail, UNJOURNALED, ASYNC),
        ("they fail again and again under load: nothing confirmed is lost or comes again", fails_under_load, UNJOURNALED, ""),
        ("the same with messages that were confirmed before they are synced", flushes_fail_softly, UNJOURNALED, ASYNC),
    ):
        if only and only not in act.__name__:
            continue
        title = f"power loss: {title}"
        if why := lacking():
            report(title, why, 0)
            continue
        started, machine, broker = time.monotonic(), None, None
        try:
            machine = Machine(*options)
            machine.mount(SECTORS[0])
            broker = brokers.new(binary, extra, os.path.join(machine.files, "data"))
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
