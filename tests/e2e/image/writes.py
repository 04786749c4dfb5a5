# SPDX-License-Identifier: Apache-2.0
"""What a disk may hold after a power cut: the writes and flushes of a run, as
QEMU's blklogwrites recorded them, replayed up to a moment.  All that was
flushed is there; of what was not, each write is there, lost, or torn between
two sectors of 512 bytes, whatever came before or after it.

The format is that of the kernel's dm-log-writes (its documentation,
admin-guide/device-mapper/log-writes.rst; QEMU docs/interop)."""
import os
import struct

SECTOR = 512
MAGIC = 0x6A736677736872
FLUSH, FUA, DISCARD = 1, 2, 4


class Write:
    def __init__(self, index, offset, size, at, flags):
        self.index, self.offset, self.size, self.at, self.flags = index, offset, size, at, flags


def entries(path):
    """The log's entries; data stays in the file, at byte `at`."""
    out = []
    with open(path, "rb") as f:
        magic, version, count, sector = struct.unpack("<QQQI", f.read(28))
        assert magic == MAGIC and version == 1 and sector == SECTOR, (hex(magic), version, sector)
        at = sector
        for index in range(count):
            f.seek(at)
            first, sectors, flags, _ = struct.unpack("<QQQQ", f.read(32))
            at += sector
            size = sectors * sector
            out.append(Write(index, first * sector, size, at, flags))
            if not flags & DISCARD:
                at += size
    return out


def count(path):
    with open(path, "rb") as f:
        return struct.unpack("<QQQI", f.read(28))[2]


class Replay:
    """A raw disk that is brought forward; lost() tells what a cut would leave."""

    def __init__(self, log, disk):
        self.log, self.disk, self.done = log, disk, 0
        self.writes = entries(log)

    def put(self, disk, write, pieces=None, shift=0, limit=None):
        """Applies a write, or its sectors numbered in pieces, to a file."""
        with open(self.log, "rb") as log, open(disk, "r+b") as out:
            for piece in pieces if pieces is not None else [None]:
                skip = 0 if piece is None else piece * SECTOR
                size = write.size if piece is None else SECTOR
                to = write.offset + skip - shift
                if to < 0 or limit is not None and to + size > limit:
                    continue
                if write.flags & DISCARD:
                    continue  # what a discarded block reads is not promised; the old bytes are the harder case
                log.seek(write.at + skip)
                out.seek(to)
                out.write(log.read(size))

    def forward(self, moment):
        """The disk gets all that was flushed before entry `moment`; gives the writes that were not."""
        flushed = self.done
        for w in self.writes[self.done:moment]:
            if w.flags & FLUSH:
                flushed = w.index + 1
        for w in self.writes[self.done:flushed]:
            if w.size:
                self.put(self.disk, w)
        self.done = flushed
        return [w for w in self.writes[flushed:moment] if w.size]

    def cut(self, disk, pending, rng, shift=0, limit=None):
        """Applies what happened to survive; gives (there, lost, torn)."""
        fates = [0, 0, 0]
        for w in pending:
            fate = 0 if w.flags & FUA else rng.choice((0, 0, 1, 1, 2))
            if fate == 2 and w.size <= SECTOR:
                fate = rng.randrange(2)
            fates[fate] += 1
            if fate == 0:
                self.put(disk, w, None, shift, limit)
            elif fate == 2:
                sectors = w.size // SECTOR
                self.put(disk, w, range(rng.randrange(1, sectors)), shift, limit)
        return fates


def part(disk, where, path):
    """A copy of a partition as a file, with holes for zeros."""
    offset, size = where
    with open(disk, "rb") as f, open(path, "wb") as out:
        at = offset
        while at < offset + size:
            try:
                start = os.lseek(f.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            end = min(os.lseek(f.fileno(), start, os.SEEK_HOLE), offset + size)
            start = min(start, offset + size)
            f.seek(start)
            out.seek(start - offset)
            while start < end:
                block = f.read(min(1 << 20, end - start))
                out.write(block)
                start += len(block)
            at = end
        out.truncate(size)
