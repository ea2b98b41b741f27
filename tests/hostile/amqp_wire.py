"""As much of AMQP 1.0 as it takes to misbehave: frames by hand, and a client that reads what it is told."""

import socket
import struct

HEADER, SASL_HEADER = b"AMQP\0\1\0\0", b"AMQP\3\1\0\0"
OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SOURCE, TARGET, COORDINATOR = 0x28, 0x29, 0x30
NULL, TRUE, FALSE = b"\x40", b"\x41", b"\x42"
# The header of a durable message.
DURABLE = b"\0\x53\x70\xc0\2\1\x41"


def uint(number):
    return b"\x70" + struct.pack(">I", number)


def ushort(number):
    return b"\x60" + struct.pack(">H", number)


def text(words):
    data = words if isinstance(words, bytes) else words.encode()
    return b"\xb1" + struct.pack(">I", len(data)) + data


def symbol(words):
    return b"\xb3" + struct.pack(">I", len(words)) + words.encode()


def binary(data):
    return b"\xb0" + struct.pack(">I", len(data)) + data


def compound(code, count, items):
    return bytes([code]) + struct.pack(">II", len(items) + 4, count) + items


def array(count, constructor, items=b""):
    return bytes([0xF0]) + struct.pack(">II", len(items) + 4 + len(constructor), count) + constructor + items


def described(code, *fields):
    return b"\0\x53" + bytes([code]) + compound(0xD0, len(fields), b"".join(fields))


def frame(body, channel=0, kind=0):
    return struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body


def said(code, *fields, channel=0, payload=b""):
    return frame(described(code, *fields) + payload, channel)


def opened(name="hostile", properties=NULL):
    return said(OPEN, text(name), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, properties)


def begun(channel=0, window=1 << 30):
    return said(BEGIN, NULL, uint(0), uint(window), uint(window), channel=channel)


def sender(name, handle, address, channel=0):
    return said(ATTACH, text(name), uint(handle), FALSE, NULL, NULL, described(SOURCE), described(TARGET, text(address)),
                NULL, NULL, uint(0), channel=channel)


def receiver(name, handle, address, channel=0):
    return said(ATTACH, text(name), uint(handle), TRUE, NULL, NULL, described(SOURCE, text(address)), described(TARGET),
                channel=channel)


def flow(handle, credit, echo=FALSE, window=1 << 30):
    return said(FLOW, uint(0), uint(window), uint(0), uint(window), uint(handle), uint(0), uint(credit), NULL, FALSE, echo)


def transfer(handle, number, payload, settled=TRUE, more=FALSE):
    tag = binary(struct.pack(">I", number))
    return said(TRANSFER, uint(handle), uint(number), tag, uint(0), settled, more, payload=payload)


def number_at(data, at):
    """An unsigned number of up to four bytes, and where the next value begins."""
    if data[at] in (0x43, 0x40):
        return 0, at + 1
    if data[at] in (0x52, 0x50):
        return data[at + 1], at + 2
    assert data[at] == 0x70, f"{data[at]:#x} is no number of four bytes"
    return struct.unpack_from(">I", data, at + 1)[0], at + 5


def delivered(body):
    """Of a transfer: the number of its delivery (0 behind the first of several), and what it carries."""
    wide = body[3] == 0xD0
    size, count = struct.unpack_from(">II", body, 4) if wide else body[4:6]
    first, end = (12, 8 + size) if wide else (6, 5 + size)
    # The handle; what is not said in the end may be left out.
    _, at = number_at(body, first)
    return number_at(body, at)[0] if 1 < count else 0, memoryview(body)[end:]


def accepted(number):
    """A receiver has this delivery, and that is settled."""
    return said(DISPOSITION, TRUE, uint(number), uint(number), TRUE, described(0x24))


def message(data):
    return b"\0\x53\x75" + binary(data)


class Client:
    """A connection with its headers exchanged; `hello` is what it says next."""

    def __init__(self, port, hello=None):
        self.peer = socket.create_connection(("127.0.0.1", port), 10)
        self.peer.settimeout(10)
        self.buffer = b""
        self.peer.sendall(HEADER + (opened() + begun() if hello is None else hello))

    def take(self):
        """The next frame: its code, and all that it holds. `None` at the end of the connection."""
        while True:
            if self.buffer[:4] == b"AMQP":
                self.buffer = self.buffer[8:]
                continue
            if len(self.buffer) >= 8 and len(self.buffer) >= (size := struct.unpack(">I", self.buffer[:4])[0]):
                body, self.buffer = self.buffer[8:size], self.buffer[size:]
                if body:
                    return body[2], body
                continue
            try:
                part = self.peer.recv(1 << 16)
            except ConnectionError:
                return None
            if not part:
                return None
            self.buffer += part

    def until(self, code):
        """Reads to the next frame of this code, which it returns."""
        while (got := self.take()) is not None:
            if got[0] == code:
                return got[1]
        raise AssertionError(f"the connection ended ahead of a frame {code:#x}")

    def close(self):
        self.peer.close()
