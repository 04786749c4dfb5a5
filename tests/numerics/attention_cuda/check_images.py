#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Goal: every kernel is in the library for every GPU that the build names.
# Method: check_images.py LIBRARY.a ARCH...: an architecture as CMake spells it (80: machine code and
# PTX; 80-real; 80-virtual).  Reads each object's fat binary, for which no CUDA tool is needed: an
# image's header holds its kind and its architecture.  An object whose only image is of 90 is one of the
# Hopper form, which is built for sm_90a alone.
import struct
import sys

FATBIN, PTX, ELF = 0xBA55ED50, 1, 2


def members(data):
    """(name, bytes) of each file of an ar archive."""
    names, at = b"", 8
    while at + 60 <= len(data):
        name, size = data[at:at + 16].rstrip(), int(data[at + 48:at + 58])
        body = data[at + 60:at + 60 + size]
        if name == b"//":
            names = body
        elif name[:1] == b"/" and name[1:].isdigit():
            long_name = names[int(name[1:]):].split(b"/\n")[0]
            yield long_name.decode(), body
        elif name != b"/":
            yield name.rstrip(b"/").decode(), body
        at += 60 + size + size % 2


def images(data):
    """{(kind, architecture)} of an object's fat binaries."""
    got, at = set(), data.find(struct.pack("<I", FATBIN))
    while at >= 0:
        _, _, head, size = struct.unpack_from("<IHHQ", data, at)
        entry, end = at + head, at + head + size
        while entry + 32 <= end:
            kind, _, length, payload = struct.unpack_from("<HHIQ", data, entry)
            got.add((kind, struct.unpack_from("<I", data, entry + 28)[0]))
            entry += length + payload
        at = data.find(struct.pack("<I", FATBIN), end)
    return got


def wanted(arch):
    number, _, form = arch.partition("-")
    kinds = {"": (ELF, PTX), "real": (ELF,), "virtual": (PTX,)}[form]
    return {(k, int(number)) for k in kinds}


def main():
    path, archs = sys.argv[1], sys.argv[2:]
    want = set().union(*(wanted(a) for a in archs))
    seen = hopper = 0
    with open(path, "rb") as f:
        data = f.read()
    for name, body in members(data):
        got = images(body)
        if not got:
            continue
        seen += 1
        if got == {(ELF, 90)} and want != got:
            hopper += 1
            continue
        if want - got:
            print(f"FAIL: {name} lacks", *(f"{'ptx' if k == PTX else 'sm'}_{n}" for k, n in want - got))
            return 1
    if not seen or seen == hopper:
        print("FAIL: no kernels in", path)
        return 1
    print(f"ok: {seen - hopper} objects hold {' '.join(archs)}; {hopper} of sm_90a alone")
    return 0


sys.exit(main())
