"""Ports for brokers under test: no two tests that run at the same time get the same."""

import random
import socket

# Offsets are multiples of this: the services' usual ports (61614 to 61619) are closer together,
# and a service of one broker would get the port of another service of the next broker.
STEP = 8
SERVICES = (61616, 61614, 5672, 8161)
# The highest usual port, 61619, must stay a legal port.
OFFSET_MAX = 65535 - 61619


class Offset:
    """A port offset that is reserved until this is closed or collected, or the process ends."""

    def __init__(self):
        for _ in range(1000):
            offset = STEP * random.randrange(1, OFFSET_MAX // STEP)
            held = reserved(offset)
            if held is None:
                continue
            if all(is_free(port + offset) for port in SERVICES):
                self.offset, self.held = offset, held
                return
            held.close()
        raise RuntimeError("no port offset is free")

    def close(self):
        self.held.close()


def reserved(offset):
    """A UDP socket that stands for this offset, as tests/jms has it too; None if another holds it."""
    held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        held.bind(("127.0.0.1", 61616 + offset))
        return held
    except OSError:
        held.close()
        return None


def is_free(port):
    """Whether a server can listen there. A port whose last connections are waiting to end counts as free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False
