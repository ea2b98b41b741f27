"""Processes that this run starts: spawned, watched through /proc, and ended by their own id."""

import os
import signal
import subprocess
import time


class Process:
    """One server process with a log of its own."""

    def __init__(self, command, directory, log_path, environment=None):
        self.log_path = log_path
        self.started = time.monotonic()
        with open(log_path, "wb") as log:
            self.child = subprocess.Popen(
                command,
                cwd=directory,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A group of its own: scripts that start a server as their child end together with it.
                start_new_session=True,
            )

    @property
    def pid(self):
        return self.child.pid

    def server_pid(self):
        """The process that does the work: the last of the line if a script stands in front of it."""
        pid = self.pid
        while True:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
                below = children.read().split()
            if len(below) != 1:
                return pid
            pid = int(below[0])

    def require_alive(self, name):
        if self.child.poll() is not None:
            with open(self.log_path, encoding="utf-8", errors="replace") as log:
                tail = "".join(log.readlines()[-30:])
            raise RuntimeError(f"{name} ended with status {self.child.returncode}; its log ends:\n{tail}")

    def stop(self, seconds_max=60):
        """Asks the process to end; after `seconds_max` makes it."""
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(seconds_max)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.child.wait()


def memory_megabytes(pid, field="VmRSS"):
    """Resident memory now (VmRSS) or at its highest (VmHWM)."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/{pid}/status has no {field}")
