"""Every byte of a small data directory that is not zero, with a bit flipped: what is exported then is what was sent, byte for byte, and
what is missing is told. `make test` takes every third byte, NIGHTLY=1 all of them."""

import os
import shutil
import signal
import subprocess
import time

import broker as brokers
import files
import openwire as o

COUNT = 5
STEP = 1 if os.environ.get("NIGHTLY") else 3


def left_by(binary, ends):
    """The data directory of a broker with a few messages, and what is exported from it, line by line."""
    broker = brokers.new(binary).must_start()
    client = o.Client(broker.port)
    for number in range(COUNT):
        client.send(o.queue("flips"), f"{number}: " + "text " * number)
    client.close()
    # At rest for a second it marks its journal: what is cut off from then on is damage.
    time.sleep(1.5)
    broker.process.send_signal(ends)
    broker.process.wait()
    # The door of one that was killed.
    if os.path.exists(os.path.join(broker.data, "control.sock")):
        os.unlink(os.path.join(broker.data, "control.sock"))
    code, lines, errors = exported(binary, broker.data)
    assert (code, len(lines)) == (0, COUNT), (code, lines, errors)
    return broker, lines


def exported(binary, data):
    found = subprocess.run([binary, "store", "export", data], capture_output=True, timeout=30)
    lines = [line for line in found.stdout.splitlines() if b'"record"' in line]
    return found.returncode, lines, found.stderr.decode(errors="replace")


def places(data):
    for name in sorted(os.listdir(data)):
        # The versions of the configuration hold no messages.
        if name in ("LOCK", "configuration"):
            continue
        with open(os.path.join(data, name), "rb") as source:
            content = source.read().rstrip(b"\0")
        yield from ((name, at) for at, byte in enumerate(content) if byte)


def every_byte(binary, ends):
    broker, want = left_by(binary, ends)
    flipped = told = 0
    try:
        for name, at in list(places(broker.data))[::STEP]:
            path = os.path.join(broker.data, name)
            files.flip(path, at, 1 << at % 8)
            code, got, errors = exported(binary, broker.data)
            files.flip(path, at, 1 << at % 8)
            where = f"{name}, byte {at}: exit {code}, {len(got)} messages: {errors[-300:]}"
            assert code in (0, 1) and "panicked" not in errors, where
            assert len(set(got)) == len(got) and set(got) <= set(want), f"a message that nobody sent: {where}"
            assert len(got) == COUNT or code == 1 and errors.strip(), f"lost, and not told: {where}"
            flipped, told = flipped + 1, told + code
        code, got, _ = exported(binary, broker.data)
        assert (code, got) == (0, want), "the directory is not as it was"
        assert flipped > 300 // STEP and told > 30, (flipped, told)
    finally:
        shutil.rmtree(broker.folder)
    return f"{flipped} bytes; told in {told} cases"


CASES = [
    ("flipped bytes of a directory that was left in order: no wrong message, no silent loss", signal.SIGTERM),
    ("the same behind kill -9", signal.SIGKILL),
]


def run(binary, report, only=None):
    for title, ends in CASES:
        if only and only not in title:
            continue
        started = time.monotonic()
        try:
            note = every_byte(binary, ends)
            report(title, None, time.monotonic() - started, note)
        except Exception as error:
            report(title, error, time.monotonic() - started)
