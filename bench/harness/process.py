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
        """The process that does the work: the largest, for scripts stand in front of some, and others have small ones to help."""
        return max(self.family(), key=resident)

    def require_alive(self, name):
        if self.child.poll() is not None:
            with open(self.log_path, encoding="utf-8", errors="replace") as log:
                tail = "".join(log.readlines()[-30:])
            raise RuntimeError(f"{name} ended with status {self.child.returncode}; its log ends:\n{tail}")

    def family(self):
        """The process and all that it has started, as far as they still hang together."""
        found = [self.pid]
        for pid in found:
            found.extend(children_of(pid))
        return found

    def stop(self, seconds_max=60):
        """Asks the process to end; after `seconds_max` makes it, and all that it has started."""
        family = self.family()
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(seconds_max)
            except subprocess.TimeoutExpired:
                pass
        self.kill(family)

    def kill(self, family=None):
        """Ends the process and all that it has started without a word, as a loss of power would."""
        for end, pid in [(os.killpg, self.pid), *((os.kill, pid) for pid in (family or self.family())[1:])]:
            try:
                end(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.child.wait()


def children_of(pid):
    """Those of a process; none if it has ended meanwhile."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
            return [int(child) for child in children.read().split()]
    except OSError:
        return []


def resident(pid):
    """Resident memory in MiB, for comparisons: 0 of a process that has ended meanwhile."""
    try:
        return memory_megabytes(pid)
    except (OSError, RuntimeError):
        return 0


def memory_megabytes(pid, field="VmRSS"):
    """Resident memory now (VmRSS) or at its highest (VmHWM)."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/{pid}/status has no {field}")
