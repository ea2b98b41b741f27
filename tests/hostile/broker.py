"""The broker as a process: start, watch, kill."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import openwire

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import ports

# Message bodies in memory; bounds on resident memory in the cases are stated with this in mind.
MEMORY_BYTES = 64 << 20
PORT = 61616


class Broker:
    """`binary` over one data directory; may be started several times."""

    def __init__(self, binary, folder, data=None, extra=""):
        self.binary, self.folder = binary, folder
        self.data = data or os.path.join(folder, "data")
        self.ports = ports.Offset()
        self.offset = self.ports.offset
        self.port = PORT + self.offset
        self.config = os.path.join(folder, "postroad.toml")
        self.log = os.path.join(folder, "stderr.txt")
        with open(self.config, "w") as out:
            out.write(f"memory_bytes = {MEMORY_BYTES}\n{extra}")
        self.process = None

    def start(self, seconds=20, limits=None):
        """Starts; returns True once it is ready, False if it ended before."""
        errors = open(self.log, "ab")
        command = [self.binary, "serve", "--config", self.config, "--data", self.data]
        command += ["--port-offset", str(self.offset)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, preexec_fn=limits)
        errors.close()
        until = time.monotonic() + seconds
        text = b""
        while b"postroad ready" not in text:
            if time.monotonic() > until:
                raise AssertionError(f"the broker was not ready within {seconds} s")
            if not openwire.select_read(self.process.stdout, 1):
                continue
            part = os.read(self.process.stdout.fileno(), 4096)
            if not part:
                self.process.wait()
                return False
            text += part
        return True

    def must_start(self):
        assert self.start(), f"the broker did not start: {self.errors()[-500:]}"
        return self

    def errors(self):
        with open(self.log, errors="replace") as log:
            return log.read()

    def alive(self):
        return self.process.poll() is None

    def kill(self):
        if self.process and self.alive():
            self.process.send_signal(signal.SIGKILL)
        if self.process:
            self.process.wait()
            self.process.stdout.close()

    def terminate(self, seconds):
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(seconds)
        self.process.stdout.close()
        return code

    def memory_bytes(self, figure="VmRSS"):
        """Resident memory; with `VmHWM` the most that it was."""
        with open(f"/proc/{self.process.pid}/status") as status:
            line = next(line for line in status if line.startswith(figure))
        return int(line.split()[1]) << 10

    def bytes_read(self):
        """What it has read so far, of files and sockets, from wherever the system had it."""
        with open(f"/proc/{self.process.pid}/io") as figures:
            return int(next(line for line in figures if line.startswith("rchar")).split()[1])

    def http(self, path):
        """What the broker answers by HTTP: status and text."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{8161 + self.offset}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def ready(self):
        return self.http("/health/ready")

    def metric(self, name):
        """The figure of this name and these labels."""
        rows = self.http("/metrics")[1].splitlines()
        found = [row for row in rows if row.startswith(name + " ")]
        assert len(found) == 1, f"{name}: {found}"
        return float(found[0].split()[-1])

    def case(self, report, title, act):
        """One case with this broker, which is whole behind it; what `act` returns is its note. Whether it passed."""
        started = time.monotonic()
        try:
            note = act()
            self.check()
            report(title, None, time.monotonic() - started, note or "")
            return True
        except Exception as error:
            report(title, error, time.monotonic() - started)
            return False

    def check(self):
        """What must hold whatever was done to it."""
        assert self.alive(), f"the broker ended with {self.process.returncode}: {self.errors()[-800:]}"
        assert "panicked" not in self.errors(), f"panic: {self.errors()[-800:]}"


def new(binary, extra="", data=None):
    """A broker over a folder of its own in the temporary directory."""
    return Broker(binary, tempfile.mkdtemp(prefix="postroad-hostile."), data, extra)


def drain(client, destination, quiet_seconds=1.5, prefetch=1000, ack=True):
    """Everything that a queue holds, acknowledged one by one: `[(body, redelivery counter)]`."""
    client.consume(destination, prefetch)
    got = []
    while True:
        try:
            delivery = client.take(quiet_seconds)
        except TimeoutError:
            break
        got.append((openwire.body(delivery), openwire.counter(delivery)))
        if ack:
            number = client.ack(delivery)
            if len(got) % 50 == 0:
                client.answer(number)
                client.answers.clear()
    client.close()
    return got
