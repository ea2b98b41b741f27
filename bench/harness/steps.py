"""Steps of a core by the broker's own histogram, and requests over HTTP to one that serves on the loopback interface."""

import http.client
import json
import re
import socket

BUCKET = re.compile(r'^postroad_core_step_seconds_bucket\{core="(\d+)",le="([^"]+)"\} (\d+)')
SECONDS_MAX = 120


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise RuntimeError(f"GET {path}: {response.status} {body[:200]!r}")
        return body.decode()
    finally:
        connection.close()


def pipelined(port, requests, window):
    """Sends (method, path, body) over one connection, with a window of unanswered ones; each must be answered with 2xx."""
    with socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as connection:
        answers = connection.makefile("rb")
        for first in range(0, len(requests), window):
            part = requests[first : first + window]
            connection.sendall(b"".join(encoded(*request) for request in part))
            for request in part:
                status = answer(answers)
                if not 200 <= status < 300:
                    raise RuntimeError(f"{request[0]} {request[1]}: {status}")


def encoded(method, path, body):
    content = json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


def answer(answers):
    """Reads one answer; returns its status."""
    status = int(answers.readline().split()[1])
    length = 0
    while (line := answers.readline().strip()) != b"":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    answers.read(length)
    return status


def parse(text):
    """Steps of all cores by their upper bound in seconds, each counted once."""
    below = {}
    for line in text.splitlines():
        found = BUCKET.match(line)
        if found and found.group(2) != "+Inf":
            below.setdefault(found.group(1), []).append((float(found.group(2)), int(found.group(3))))
    counts = {}
    for of_core in below.values():
        before = 0
        for bound, count in sorted(of_core):
            counts[bound] = counts.get(bound, 0) + count - before
            before = count
    return counts


def histogram(port):
    return parse(get(port, "/metrics"))


def longest(before, after):
    """How many steps there were in between, the bound of the longest, and how many took more than 10 ms for certain."""
    new = {bound: count - before.get(bound, 0) for bound, count in after.items()}
    taken = [bound for bound, count in new.items() if 0 < count]
    long = sum(count for bound, count in new.items() if 0.02 < bound)
    return sum(new.values()), max(taken, default=0.0), long


def table(rows):
    lines = ["| phase | seconds | steps | longest step ms, at most | over 16 ms |", "|---|---:|---:|---:|---:|"]
    for name, seconds, (count, bound, long) in rows:
        lines.append(f"| {name} | {seconds:.1f} | {count:,} | {bound * 1000:.3g} | {long} |")
    return "\n".join(lines)
