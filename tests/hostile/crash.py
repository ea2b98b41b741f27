"""kill -9 in a loop under load, and SIGTERM under load: what was confirmed holds."""

import os
import random
import time

import broker as brokers
from load import PATTERNS, Load

# Of each of the two loops: a minute together, or what CRASH_SECONDS says.
SECONDS = int(os.environ.get("CRASH_SECONDS", 30))
SEED = 20261121
# What waits for no sync outlives the process all the same; with so long a time nothing is synced by the clock.
WRITTEN_FIRST = "[store]\nasync_sync_ms = 60000\n" + "".join(
    f'[[policy]]\ndestination = "{pattern}"\ndurability = "async"\n' for pattern in PATTERNS
)


def killed(broker):
    chance, load, kills = random.Random(SEED), Load(broker.must_start()), 0
    load.start()
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and not load.failures:
        time.sleep(chance.uniform(0.3, 1.2))
        load.up.clear()
        broker.kill()
        kills += 1
        broker.must_start()
        load.up.set()
    load.stop()
    return f"{kills} kills, {load.verify()}"


def terminated(broker):
    load = Load(broker.must_start())
    load.start()
    time.sleep(1.5)
    load.up.clear()
    started = time.monotonic()
    code = broker.terminate(15)
    took = time.monotonic() - started
    load.stop()
    assert code == 0, f"exit code {code}"
    assert took < 10, f"it took {took:.1f} s"
    broker.must_start()
    return f"ended in {took:.1f} s, {load.verify()}"


def run(binary, report, only=None):
    for title, act, extra in (
        (f"killed again and again for {SECONDS} s under load: nothing confirmed is lost or comes again", killed, ""),
        (f"the same for {SECONDS} s with messages that are confirmed before they are synced", killed, WRITTEN_FIRST),
        ("SIGTERM under load: exit code 0 within 10 s, nothing confirmed is lost or comes again", terminated, ""),
    ):
        if only and only not in act.__name__:
            continue
        broker = brokers.new(binary, extra)
        broker.case(report, title, lambda: act(broker))
        broker.kill()
