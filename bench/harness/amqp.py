"""As much of AMQP 1.0 as it takes to know that a broker serves: the headers."""

import socket

HEADER = b"AMQP\x00\x01\x00\x00"


def answers(port):
    """Does a broker on this port of the loopback interface answer the protocol header with its own, or with SASL's?"""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.settimeout(2)
            connection.sendall(HEADER)
            answer = b""
            while len(answer) < len(HEADER):
                more = connection.recv(64)
                if not more:
                    return False
                answer += more
            return answer[:4] == b"AMQP"
    except OSError:
        return False
