#!/usr/bin/env python3
"""A disk that loses its power: what was written is kept apart from what was flushed, and a cut takes what was not.

    power_disk.py FOLDER MOUNT BYTES

A FUSE file system with one file of BYTES bytes, MOUNT/disk, for a loop device with a real file system on it. FOLDER holds what the
file says now (`cached`) and what a power cut leaves of it for certain (`flushed`; it may be there, and is where the file begins).
It speaks the kernel's protocol itself (include/uapi/linux/fuse.h, 7.31): no library, no package.

Commands come as lines on standard input, and each is answered by a line:
    cut             from now on writes and flushes fail; nothing that comes later is kept
    on KEEP BLOCK SEED
                    power again: of what was not flushed each block of BLOCK bytes of each write is there with probability KEEP
    lie             flushes are answered from now on, and keep nothing
    fail            flushes fail from now on, and keep nothing; writes and reads go on
    heal            flushes succeed again
"""

import ctypes
import errno
import os
import random
import select
import stat
import struct
import sys

LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS, RELEASE = 1, 2, 3, 4, 14, 15, 16, 17, 18
FSYNC, FLUSH, INIT, OPENDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET = 20, 25, 26, 27, 29, 36, 42
IN_HEADER, OUT_HEADER = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ")
ENTRY, ATTRIBUTES = struct.Struct("<QQQQII"), struct.Struct("<QQQQQQIIIIIIIIII")
# Of FUSE_INIT: reads side by side, writes of more than a page, `max_pages` is said.
FLAGS = 1 | 1 << 5 | 1 << 22
WRITE_BYTES_MAX, PAGE = 1 << 20, 4096
ROOT = 1
MS_NOSUID, MS_NODEV = 2, 4


class Disk:
    """The bytes: `cached` is what a reader sees, `flushed` what outlives a cut, `pending` what is between them, in order."""

    def __init__(self, folder, size):
        self.size, self.pending, self.powered, self.honest, self.sound = size, [], True, True, True
        self.failures = 0
        flags = os.O_RDWR | os.O_CREAT
        self.cached, self.flushed = (os.open(os.path.join(folder, name), flags, 0o600) for name in ("cached", "flushed"))
        os.ftruncate(self.flushed, size)

    def read(self, count, offset):
        return os.pread(self.cached, count, offset)

    def write(self, data, offset):
        if not self.powered:
            raise OSError(errno.EIO, "no power")
        os.pwrite(self.cached, data, offset)
        self.pending.append((offset, data))

    def flush(self):
        if not self.powered:
            raise OSError(errno.EIO, "no power")
        if not self.sound:
            self.failures += 1
            raise OSError(errno.EIO, "the disk fails")
        if self.honest:
            self.keep(self.pending)
            self.pending = []

    def keep(self, writes):
        for offset, data in writes:
            os.pwrite(self.flushed, data, offset)

    def cut(self):
        self.powered = False
        return sum(len(data) for _, data in self.pending)

    def on(self, keep, block, seed):
        """What was pending is there in part; readers see that and nothing else."""
        chance, pending = random.Random(seed), self.pending
        kept = 0
        for offset, data in pending:
            for at in range(0, len(data), block):
                if chance.random() < keep:
                    part = data[at : at + block]
                    os.pwrite(self.flushed, part, offset + at)
                    kept += len(part)
        for offset, data in pending:
            os.pwrite(self.cached, os.pread(self.flushed, len(data), offset), offset)
        self.pending, self.powered, self.honest, self.sound = [], True, True, True
        return kept


class FileSystem:
    """One directory with one file. After each cut the file is another node, so that nothing of it is in the kernel's cache."""

    def __init__(self, disk, mount):
        self.disk, self.life = disk, ROOT + 1
        self.device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self.device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}".encode()
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"postroad-power", mount.encode(), b"fuse", MS_NOSUID | MS_NODEV, options) != 0:
            raise OSError(ctypes.get_errno(), "mount of a FUSE file system: " + os.strerror(ctypes.get_errno()))

    def serve(self):
        """One request. False once it is unmounted."""
        try:
            request = os.read(self.device, WRITE_BYTES_MAX + PAGE)
        except OSError as error:
            # A request that was given up before it was read.
            if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                return True
            return False
        _, kind, unique, node, *_ = IN_HEADER.unpack_from(request)
        if kind in (FORGET, BATCH_FORGET, INTERRUPT):
            return True
        code, answer = 0, b""
        try:
            answer = self.answer(kind, node, request[IN_HEADER.size :])
        except OSError as error:
            code = -error.errno
        try:
            os.write(self.device, OUT_HEADER.pack(OUT_HEADER.size + len(answer), code, unique) + answer)
        except FileNotFoundError:
            pass  # Who asked is gone.
        return True

    def answer(self, kind, node, body):
        if kind == INIT:
            return self.init(*struct.unpack_from("<II", body))
        if kind == LOOKUP:
            if body.rstrip(b"\0") != b"disk":
                raise OSError(errno.ENOENT, "no such file")
            return ENTRY.pack(self.life, 0, 0, 0, 0, 0) + self.attributes(self.life)
        if kind in (GETATTR, SETATTR):
            return struct.pack("<QII", 0, 0, 0) + self.attributes(node)
        if kind in (OPEN, OPENDIR):
            return struct.pack("<QII", 0, 0, 0)
        if kind == READ:
            _, offset, count = struct.unpack_from("<QQI", body)
            return self.disk.read(count, offset)
        if kind in (WRITE, FSYNC) and node != self.life:
            raise OSError(errno.EIO, "of a former life")
        if kind == WRITE:
            _, offset, count = struct.unpack_from("<QQI", body)
            self.disk.write(body[40 : 40 + count], offset)
            return struct.pack("<II", count, 0)
        if kind == FSYNC:
            self.disk.flush()
            return b""
        if kind == STATFS:
            return struct.pack("<5Q4I6I", 0, 0, 0, 0, 0, PAGE, 255, PAGE, 0, *[0] * 6)
        if kind in (RELEASE, RELEASEDIR, FLUSH):
            return b""
        raise OSError(errno.ENOSYS, "not known")

    def init(self, major, minor):
        return struct.pack(
            "<IIIIHHIIHHI7I", 7, min(minor, 31), 1 << 20, FLAGS, 16, 12, WRITE_BYTES_MAX, 1, WRITE_BYTES_MAX // PAGE, 0, 0, *[0] * 7
        )

    def attributes(self, node):
        mode, size = (stat.S_IFDIR | 0o700, 0) if node == ROOT else (stat.S_IFREG | 0o600, self.disk.size)
        return ATTRIBUTES.pack(node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, os.getuid(), os.getgid(), 0, PAGE, 0)


def command(files, words):
    if words[0] == "cut":
        return f"{files.disk.cut()} bytes were not flushed"
    if words[0] == "on":
        files.life += 1
        return f"{files.disk.on(float(words[1]), int(words[2]), int(words[3]))} bytes of them are there"
    if words[0] == "lie":
        files.disk.honest = False
        return "lies"
    if words[0] in ("fail", "heal"):
        files.disk.sound = words[0] == "heal"
        return f"{files.disk.failures} flushes have failed"
    return "no such command"


def main():
    folder, mount, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    files = FileSystem(Disk(folder, size), mount)
    print("mounted", flush=True)
    poll = select.poll()
    poll.register(files.device, select.POLLIN)
    poll.register(0, select.POLLIN | select.POLLHUP)
    while True:
        for ready, _ in poll.poll():
            if ready == files.device:
                if not files.serve():
                    return
            else:
                line = sys.stdin.buffer.raw.readline().decode()
                if not line:
                    return
                print(command(files, line.split()), flush=True)


if __name__ == "__main__":
    main()
