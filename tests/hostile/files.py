"""Data directories that are damaged, or of a newer version (docs/formats/journal.md): a clear error, never a panic."""

import glob
import json
import os
import shutil
import struct
import time

import broker as brokers
import openwire as o

COUNT = 200


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def segment(data):
    """The file that holds the messages: the one with the most bytes that are not zero."""
    files = glob.glob(os.path.join(data, "**", "*.segment"), recursive=True)
    return max(files, key=lambda file: len(open(file, "rb").read().rstrip(b"\0")))


def change(file, at, data):
    with open(file, "r+b") as out:
        out.seek(at)
        out.write(data)


def flip(file, at, bits=0x10):
    """These bits of one byte; whoever reads past the page cache sees it, too."""
    with open(file, "r+b") as out:
        byte = os.pread(out.fileno(), 1, at)[0]
        os.pwrite(out.fileno(), bytes([byte ^ bits]), at)
        os.fsync(out.fileno())


def newer_segment(data):
    """a segment of format version 99"""
    file = segment(data)
    with open(file, "rb") as source:
        header = bytearray(source.read(512))
    header[8:12] = struct.pack("<I", 99)
    change(file, 8, struct.pack("<II", 99, crc32c(header[0:12] + header[16:512])))
    return "version"


def newer_layout(data):
    """a directory of layout version 99"""
    file = os.path.join(data, "layout.json")
    layout = json.load(open(file))
    layout["version"] = 99
    json.dump(layout, open(file, "w"))
    return "99"


def bad_layout(data):
    """a layout file that is no JSON"""
    with open(os.path.join(data, "layout.json"), "wb") as out:
        out.write(b"\0garbage")
    return "layout.json"


def flipped_in_the_middle(data):
    """a flipped byte in a record with confirmed records behind it"""
    file = segment(data)
    used = len(open(file, "rb").read().rstrip(b"\0"))
    flip(file, used // 2)
    return os.path.basename(file)


def flipped_segment_header(data):
    """a flipped byte in a segment's header"""
    file = segment(data)
    flip(file, 17)
    return os.path.basename(file)


def no_directory(data):
    """a file where the directory should be"""
    shutil.rmtree(data)
    open(data, "w").close()
    return os.path.basename(data)


def missing_segment(data):
    """the segment with the messages is gone"""
    file = segment(data)
    os.unlink(file)
    return "segment"


CASES = [newer_segment, newer_layout, bad_layout, flipped_in_the_middle, flipped_segment_header, no_directory, missing_segment]


def judge(broker, named):
    """It refuses to start and names `named`, or it starts and names the damage in its log."""
    started = broker.start()
    errors = broker.errors()
    assert "panicked" not in errors, errors[-800:]
    if not started:
        code = broker.process.returncode
        assert code not in (0, None) and code > 0, f"exit code {code}"
        assert named in errors, f"the error does not name {named}: {errors[-400:]}"
        return "refused: " + errors.strip().splitlines()[-1][-160:]
    assert named in errors, f"it started and said nothing of {named}: {errors[-400:]}"
    client = o.Client(broker.port)
    try:
        client.send(o.queue("files"), "text", seconds=3)
    except o.Refused:
        pass
    broker.check()
    return "started, and named it"


def run(binary, report, only=None):
    original = brokers.new(binary).must_start()
    client = o.Client(original.port)
    for number in range(COUNT):
        client.send(o.queue("files"), f"{number}:" + "x" * 300)
    original.kill()
    for case in CASES:
        if only and only not in case.__name__:
            continue
        started = time.monotonic()
        broker = brokers.new(binary)
        # A broker that was killed has left its door behind, which is no file.
        shutil.copytree(original.data, broker.data, ignore=shutil.ignore_patterns("control.sock"))
        try:
            report(case.__doc__, None, time.monotonic() - started, judge(broker, case(broker.data)))
        except Exception as error:
            report(case.__doc__, error, time.monotonic() - started)
        broker.kill()
        shutil.rmtree(broker.folder)
    second = brokers.new(binary, data=original.data)
    title, started = "two brokers over one directory: the second is refused", time.monotonic()
    try:
        original.must_start()
        assert not second.start(), "it started"
        assert "panicked" not in second.errors() and second.process.returncode > 0
        report(title, None, time.monotonic() - started, second.errors().strip().splitlines()[-1][-160:])
    except Exception as error:
        report(title, error, time.monotonic() - started)
    original.kill()
    second.kill()
