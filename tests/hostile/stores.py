"""Several stores: what lives where, kill -9 over both, one disk full, one missing."""

import os
import re
import shutil
import subprocess
import tempfile
import time

import broker as brokers
import disk
import openwire as o

FAST, SLOW = o.queue("fast.a"), o.queue("slow.a")
POLICY = '[[policy]]\ndestination = "queue://fast.>"\nstore = "fast"\n'
BODY = b"x" * (256 << 10)
# Room for a few segments of 64 MiB, and behind the ballast for the end of a backup.
DISK_MIB, BALLAST_MIB = 330, 80
ROUNDS = 5


class Bench:
    """A broker with a store on a small disk, and what was acknowledged to whom."""

    def __init__(self, binary, folder, mount):
        self.fast = os.path.join(mount, "fast")
        self.store = f'[[store]]\nname = "fast"\npath = "{self.fast}"\n'
        self.broker = brokers.new(binary, data=os.path.join(folder, "data"), extra=self.store + POLICY)
        self.sent = {"fast": [], "slow": []}
        self.ballast = os.path.join(mount, "ballast")
        with open(self.ballast, "wb") as out:
            os.posix_fallocate(out.fileno(), 0, BALLAST_MIB << 20)

    def configure(self, extra):
        with open(self.broker.config, "w") as out:
            out.write(f"memory_bytes = {brokers.MEMORY_BYTES}\n{extra}")

    def check_all(self):
        """Everything that was acknowledged is there, in order, once; all that is there, by store."""
        there = {}
        for queue, kind in ((FAST, "fast"), (SLOW, "slow")):
            client = o.Client(self.broker.port)
            client.consume(queue, 1000)
            got = []
            while True:
                try:
                    delivery = client.take(2)
                except TimeoutError:
                    break
                got.append(o.body(delivery).split(b":")[0].decode())
                client.answer(client.ack(delivery), 15)
            client.close()
            # What was sent and not answered when the broker was killed may be there.
            known = [name for name in got if name in set(self.sent[kind])]
            assert known == self.sent[kind], f"{kind}: {len(known)} of {len(self.sent[kind])} in order"
            assert len(set(got)) == len(got), f"{kind}: something came twice"
            self.sent[kind], there[kind] = [], got
        return there


def placed(bench):
    bench.broker.must_start()
    client = o.Client(bench.broker.port)
    for queue, kind in ((FAST, "fast"), (SLOW, "slow")):
        client.send(queue, b"first:")
        bench.sent[kind].append("first")
    written = [bench.broker.metric('postroad_journal_group_records_sum{store="%s"}' % name) for name in ("main", "fast")]
    assert all(1 <= records for records in written), written
    assert bench.broker.ready() == (200, "ready\n"), bench.broker.ready()


def killed(bench):
    """Each transaction sends one message to both stores: after a kill both have it or neither."""
    number = 0
    for round in range(ROUNDS):
        client = o.Client(bench.broker.port)
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            number += 1
            name = f"{round}-{number}"
            transaction = client.transaction(number)
            client.step(o.BEGIN, number)
            for queue in (FAST, SLOW):
                client.send(queue, name.encode() + b":", transaction=transaction)
            client.step(o.COMMIT, number)
            for kind in bench.sent:
                bench.sent[kind].append(name)
        # One that is on its way when the process is killed.
        number += 1
        client.step(o.BEGIN, number)
        for queue in (FAST, SLOW):
            client.send(queue, f"{round}-doubt:".encode(), transaction=client.transaction(number))
        client.push(
            o.TRANSACTION_INFO, wait=True, connection_id=(120, {"value": client.name}),
            transaction_id=client.transaction(number), step=o.COMMIT,
        )
        time.sleep(0.0004 * round)
        bench.broker.kill()
        bench.broker.must_start()
    # What was in doubt is being decided since the start; readers that come meanwhile see each half as it is carried out.
    there = bench.check_all()
    assert there["fast"] == there["slow"], "a transaction is half there"
    return f"{len(there['fast'])} transactions"


def stays(bench):
    """A policy changes: what exists stays, and what is new follows it."""
    client = o.Client(bench.broker.port)
    client.send(FAST, b"stays:")
    bench.broker.kill()
    bench.configure(bench.store)
    bench.broker.must_start()
    client = o.Client(bench.broker.port)
    before = bench.broker.metric('postroad_journal_group_records_sum{store="fast"}')
    client.send(FAST, b"again:")
    client.send(o.queue("fast.new"), b"main:")
    assert bench.broker.metric('postroad_journal_group_records_sum{store="fast"}') == before + 1
    bench.sent["fast"] = ["stays", "again"]
    bench.check_all()
    bench.broker.kill()
    bench.configure(bench.store + POLICY)
    bench.broker.must_start()


def full(bench):
    """The disk of one store is full: the other's clients notice nothing."""
    client = o.Client(bench.broker.port)
    refusal, refusals = None, 0
    for number in range(2000):
        try:
            client.send(FAST, b"%d:" % number + BODY, seconds=15)
        except o.Refused as error:
            # The segment that was being made when the last one was full gives room once more.
            refusal, refusals = error, refusals + 1
            if refusals == 5:
                break
            time.sleep(0.1)
            continue
        refusals = 0
        bench.sent["fast"].append(str(number))
    assert refusal and refusal.java_class.endswith("ResourceAllocationException"), refusal
    for number in range(100):
        client.send(SLOW, b"%d:" % number, seconds=5)
        bench.sent["slow"].append(str(number))
    assert bench.broker.metric('postroad_journal_full{store="fast"}') == 1
    assert bench.broker.metric('postroad_journal_full{store="main"}') == 0
    status, text = bench.broker.ready()
    reason = "persistent messages are refused: the disk, or the store's disk_bytes_max, is full"
    wants = rf"ready\nstore fast: {reason}; segments take \d+ bytes, what is kept in them \d+\n"
    assert status == 200 and re.fullmatch(wants, text), (status, text)
    bench.broker.kill()
    bench.broker.must_start()
    taken = len(bench.sent["fast"])
    bench.check_all()
    client, until = o.Client(bench.broker.port), time.monotonic() + disk.RESUME_S
    while "room" not in bench.sent["fast"]:
        try:
            client.send(FAST, b"room:", seconds=15)
            bench.sent["fast"].append("room")
        except o.Refused:
            assert time.monotonic() < until, "sends are still refused"
            time.sleep(0.1)
    return f"after {taken} messages"


def backed_up(bench):
    """A backup of both is a broker of its own."""
    os.unlink(bench.ballast)
    home = os.path.dirname(bench.broker.data)
    to, fast = os.path.join(home, "backup"), os.path.join(os.path.dirname(bench.fast), "backup")
    command = [bench.broker.binary, "store", "backup", "--data", bench.broker.data, "--to", to]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode != 0 and "--store NAME=DIR" in refused.stderr, refused.stderr
    here = os.path.join(home, "part")
    refused = subprocess.run([*command, "--store", f"fast={here}"], capture_output=True, text=True)
    assert refused.returncode == 1 and "must be on the same file system as" in refused.stderr, refused.stderr
    left = [name for name in os.listdir(home) if name.startswith(("backup", "part"))]
    assert not left, f"it left {left} behind"
    made = subprocess.run([*command, "--store", f"fast={fast}"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    copy = brokers.new(bench.broker.binary, data=to, extra=bench.store.replace(bench.fast, fast) + POLICY)
    try:
        with open(copy.config) as config:
            own = config.read()
        with open(copy.config, "w") as config:
            config.write(own.replace(fast, bench.fast))
        bench.broker.kill()
        assert not copy.start(), "it took a store of the original for its own"
        assert "of another data directory; a backup has one directory per store" in copy.errors(), copy.errors()
        bench.broker.must_start()
        with open(copy.config, "w") as config:
            config.write(own)
        copy.must_start()
        client = o.Client(copy.port)
        client.consume(FAST, 10)
        assert o.body(client.take(5)).startswith(b"room:")
    finally:
        copy.kill()
        shutil.rmtree(fast)
    for folder in (to, bench.broker.data, bench.fast):
        if folder != to:
            bench.broker.kill()
        checked = subprocess.run([bench.broker.binary, "store", "verify", folder], capture_output=True, text=True)
        assert checked.returncode == 0, f"{folder}: {checked.stdout}{checked.stderr}"
    shutil.rmtree(to)
    bench.broker.must_start()


def refused(bench):
    """A store that is missing, unnamed or another's is told of, and nothing is made anew."""
    bench.broker.kill()
    away = bench.fast + ".away"

    def said(*wants):
        open(bench.broker.log, "w").close()
        assert not bench.broker.start(), "it started"
        errors = bench.broker.errors()
        for want in wants:
            assert want in errors, f"{want!r} is not in {errors}"

    bench.configure("")
    said("its store fast has messages", "no [[store]] of that name")
    bench.configure(bench.store + POLICY)
    os.rename(bench.fast, away)
    said(f"the store fast in {bench.fast}", "no such directory")
    os.mkdir(bench.fast)
    said("there is no layout.json in it; is its device mounted?")
    os.rmdir(bench.fast)
    os.rename(away, bench.fast)
    layout = os.path.join(bench.fast, "layout.json")
    os.rename(layout, layout + ".away")
    said("its layout.json is missing, but there is a journal")
    os.rename(layout + ".away", layout)
    main, bench.broker.data = bench.broker.data, bench.fast
    bench.configure("")
    said("is the store fast of another data directory")
    bench.configure(bench.store + POLICY)
    bench.broker.data = main + ".other"
    said("it holds the store fast", "of another data directory")
    bench.broker.data = main
    bench.broker.must_start()
    bench.check_all()


def run(binary, report, only=None):
    folder = tempfile.mkdtemp(prefix="postroad-hostile-stores.")
    mount = os.path.join(folder, "small")
    os.mkdir(mount)
    kind, why = disk.mounted(mount, DISK_MIB)
    if not kind:
        return report("stores", why, 0)
    bench = Bench(binary, folder, mount)
    try:
        for title, act in (
            ("each queue is written to its store", placed),
            ("kill -9 between both: no transaction is half there, nothing is lost", killed),
            ("a changed policy moves nothing that exists", stays),
            ("one disk is full, the other store goes on", full),
            ("a backup of both starts as a broker", backed_up),
            ("a store that is missing or another's is told of", refused),
        ):
            if not bench.broker.case(report, f"stores: {title}", lambda: act(bench)):
                break
    finally:
        bench.broker.kill()
        subprocess.run(["umount", "-l", mount], capture_output=True)
        if os.path.exists(mount + ".image"):
            os.unlink(mount + ".image")
