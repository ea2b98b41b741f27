"""As much of OpenWire as it takes to know that a broker serves: the greeting."""

import socket
import struct

# Frame: size, type 1 (WireFormatInfo), magic, version 1, no properties.
GREETING = struct.pack(">iB8siB", 14, 1, b"ActiveMQ", 1, 0)


def answers(port):
    """Does a broker on this port of the loopback interface answer the greeting with its own?"""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.settimeout(2)
            connection.sendall(GREETING)
            answer = b""
            while len(answer) < 13:
                more = connection.recv(64)
                if not more:
                    return False
                answer += more
            return answer[5:13] == b"ActiveMQ"
    except OSError:
        return False
