"""A Postroad on ports of its own, with a configuration."""

import os
import sys
import time

from .process import Process

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests"))
import ports  # noqa: E402

READY = "postroad ready"
LOOK_SECONDS = 0.01


class OwnPostroad:
    """It keeps its files in the folder. The words before its command, if any, end in running that in the same process."""

    def __init__(self, binary, folder, configuration, before=()):
        self.reserved = ports.Offset()
        offset = self.reserved.offset
        self.port, self.http = 61616 + offset, 8161 + offset
        self.url = f"tcp://127.0.0.1:{self.port}"
        config, log = os.path.join(folder, "postroad.toml"), os.path.join(folder, "log")
        with open(config, "w", encoding="utf-8") as out:
            out.write(configuration)
        command = [binary, "serve", "--config", config, "--data", os.path.join(folder, "data"), "--port-offset", str(offset)]
        self.process = Process([*before, *command], folder, log)
        try:
            self.await_ready(log)
        except BaseException:
            self.stop()
            raise

    def await_ready(self, log):
        while True:
            self.process.require_alive("postroad")
            with open(log, encoding="utf-8", errors="replace") as lines:
                if READY in lines.read():
                    return
            time.sleep(LOOK_SECONDS)

    def stop(self):
        self.process.stop()
        self.reserved.close()
