"""A disk that is really full: a small file system in a file, else a tmpfs."""

import os
import subprocess
import tempfile
import time

import broker as brokers
import openwire as o

# Segments have 64 MiB and the next one is made ahead: two fit beside the ballast, three without it.
DISK_MIB, BALLAST_MIB = 230, 64
BODY = b"x" * (256 << 10)
QUEUE = o.queue("disk")
RESUME_S = 8


# What ext4 takes for itself of so small a disk.
EXT4_MIB = 12


def mounted(folder, mib=DISK_MIB):
    """How the folder became a small disk, a file system in a file if there can be one; None and the reason if it could not."""
    image, reasons = folder + ".image", []
    loop = (["mkfs.ext4", "-q", "-F", "-m", "0", "-N", "1024", "-J", "size=4", image], ["mount", "-o", "loop", image, folder])
    tmpfs = (["mount", "-t", "tmpfs", "-o", f"size={mib}m", "postroad-hostile", folder],)
    with open(image, "wb") as out:
        out.truncate(mib + EXT4_MIB << 20)
    for kind, commands in (("ext4", loop), ("tmpfs", tmpfs)):
        try:
            for command in commands:
                subprocess.run(command, capture_output=True, text=True, check=True)
            return kind, None
        except (OSError, subprocess.CalledProcessError) as error:
            reasons.append((getattr(error, "stderr", None) or str(error)).strip())
    os.unlink(image)
    return None, "no mount: " + "; ".join(reasons)


def remount(folder, how):
    subprocess.run(["mount", "-o", f"remount,{how}", folder], capture_output=True, text=True, check=True)


class Ledger:
    """What was acknowledged to the producer and what was confirmed to the consumer."""

    def __init__(self):
        self.count, self.sent, self.done = 0, [], set()

    def fill(self, client, limit=2000):
        """Sends until the broker refuses; the refusal."""
        for _ in range(limit):
            self.count += 1
            name = b"%d:" % self.count
            try:
                client.send(QUEUE, name + BODY, seconds=15)
            except o.Refused as refusal:
                return refusal
            self.sent.append(name)
        raise AssertionError(f"{limit} sends were not refused")

    def resume(self, client, seconds=RESUME_S):
        """Sends again and again until one is taken; how long that took."""
        started = time.monotonic()
        while time.monotonic() - started < seconds:
            self.count += 1
            name = b"%d:" % self.count
            try:
                client.send(QUEUE, name + BODY, seconds=15)
            except o.Refused:
                time.sleep(0.1)
                continue
            self.sent.append(name)
            return time.monotonic() - started
        raise AssertionError(f"sends are still refused after {seconds} s")

    def take(self, client, count):
        """Consumes and confirms up to `count`, in order; stops when nothing more comes."""
        for _ in range(count):
            try:
                delivery = client.take(3)
            except TimeoutError:
                return
            name = o.body(delivery).split(b":")[0] + b":"
            assert name not in self.done, f"message {name!r} came again after its acknowledgement was confirmed"
            client.answer(client.ack(delivery), 15)
            self.done.add(name)

    def check_all(self, client):
        client.consume(QUEUE, 20)
        self.take(client, len(self.sent) + 10)
        lost = [name for name in self.sent if name not in self.done]
        assert not lost, f"{len(lost)} of {len(self.sent)} acknowledged messages are lost, first {lost[0]!r}"
        client.close()


def run(binary, report, only=None):
    folder = tempfile.mkdtemp(prefix="postroad-hostile-disk.")
    kind, why = mounted(folder)
    if not kind:
        return report("full disk", why, 0)
    ballast = os.path.join(folder, "ballast")
    with open(ballast, "wb") as out:
        os.posix_fallocate(out.fileno(), 0, BALLAST_MIB << 20)
    broker = brokers.new(binary, data=os.path.join(folder, "data"))
    ledger = Ledger()

    def step(title, act):
        return bool(only and only not in title) or broker.case(report, f"full {kind}: {title}", act)

    def refuse():
        broker.must_start()
        refusal = ledger.fill(o.Client(broker.port))
        assert refusal.java_class.endswith("ResourceAllocationException"), refusal
        assert "disk" in refusal.text or "full" in refusal.text or "space" in refusal.text, refusal
        other = o.Client(broker.port)
        other.send(o.queue("volatile"), "text", persistent=False)
        other.consume(o.topic("topic"))
        return f"after {len(ledger.sent)} messages: {refusal}"

    def ballast_gone():
        os.unlink(ballast)
        took = ledger.resume(o.Client(broker.port))
        return f"after {took:.1f} s"

    def consumed():
        client = o.Client(broker.port)
        refusal = ledger.fill(client)
        reader = o.Client(broker.port)
        reader.consume(QUEUE, 20)
        ledger.take(reader, len(ledger.sent) * 3 // 4)
        reader.close()
        assert refusal and len(ledger.done) >= len(ledger.sent) * 3 // 4, f"only {len(ledger.done)} messages came"
        took = ledger.resume(client)
        return f"after {took:.1f} s"

    def killed():
        ledger.fill(o.Client(broker.port))
        broker.kill()
        broker.must_start()
        return f"{len(ledger.sent)} messages acknowledged"

    def read_only():
        broker.kill()
        remount(folder, "ro")

        def ran(*words):
            done = subprocess.run([binary, *words], capture_output=True, text=True)
            return done.returncode, done.stdout, done.stderr

        try:
            for command in ("verify", "stats", "dump", "repair"):
                code, _, errors = ran("store", command, broker.data)
                assert code == 0, f"{command}: {errors}"
            code, lines, errors = ran("store", "export", broker.data)
            assert code == 0 and lines.count('"queue://disk"') == len(ledger.sent) - len(ledger.done), errors
            assert not broker.start(), "it started where it cannot write"
            assert "Read-only file system" in broker.errors(), broker.errors()
        finally:
            remount(folder, "rw")
        broker.must_start()

    def complete():
        ledger.check_all(o.Client(broker.port))
        return f"{len(ledger.done)} messages"

    try:
        for title, act in (
            ("sends are refused with class and reason, the rest works", refuse),
            ("a ballast file is removed, and sends succeed again without a restart", ballast_gone),
            ("filled again: acknowledgements succeed, and make space for sends", consumed),
            ("filled again, killed: it starts on the full disk", killed),
            ("mounted read-only: it is checked, shown and exported", read_only),
            ("every acknowledged message is there, none comes again", complete),
        ):
            if not step(title, act):
                if not broker.process or not broker.alive():
                    break
    finally:
        broker.kill()
        subprocess.run(["umount", "-l", folder], capture_output=True)
        if os.path.exists(folder + ".image"):
            os.unlink(folder + ".image")
