"""A broker for tests: starts, dies, starts again over the same data."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import ports

BINARY = os.environ["POSTROAD_BINARY"]


class Broker:
    """`postroad serve` over a directory of its own, at free ports."""

    def __init__(self, config=None):
        self.folder = tempfile.mkdtemp(prefix="postroad-http.")
        self.config = None
        if config is not None:
            self.config = os.path.join(self.folder, "postroad.toml")
            with open(self.config, "w") as file:
                file.write(config)
        self.process = None
        # Options of the command line beside those of every broker.
        self.options = []
        # Variables of the broker's environment beside those of this process.
        self.environment = {}
        self.ports = ports.Offset()
        self.offset = self.ports.offset
        self.http = 8161 + self.offset
        self.openwire = 61616 + self.offset
        self.amqp = 5672 + self.offset

    def start(self):
        self.spawn()
        return self.wait_until_ready()

    def spawn(self):
        log = open(os.path.join(self.folder, "err"), "ab")
        data = os.path.join(self.folder, "data")
        command = [BINARY, "serve", "--data", data, "--port-offset", str(self.offset)]
        if self.config is not None:
            command += ["--config", self.config]
        command += self.options
        environment = {**os.environ, **self.environment}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        log.close()

    def wait_until_ready(self):
        until = time.monotonic() + 60
        for line in self.process.stdout:
            if line.startswith("postroad ready"):
                return self
            if time.monotonic() > until:
                break
        with open(os.path.join(self.folder, "err")) as log:
            raise AssertionError(f"the broker did not start: {log.read()[-1000:]}")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        self.process.terminate()
        self.process.wait(30)
        self.process.stdout.close()
        self.ports.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def is_alive(self):
        return self.process.poll() is None
