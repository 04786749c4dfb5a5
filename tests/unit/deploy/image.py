#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The locks of the image's packages and of what builds modules name all of them, once, and the SBOM says what dpkg's status says.
usage: image.py ROOT"""
import json
import os
import re
import subprocess
import sys
import tempfile

STATUS = """Package: busybox
Status: install ok installed
Maintainer: Debian Install System Team <x@example.org>
Architecture: amd64
Version: 1:1.35.0-4
Description: Tiny utilities
 for small systems

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: libstdc++6
Status: install ok installed
Architecture: amd64
Source: gcc-12 (12.2.0)
Version: 12.2.0-14
"""


def read(folder, name):
    with open(os.path.join(folder, name), encoding="ascii") as f:
        return f.read()


def check_kernel(image, modules):
    """The headers that modules are built with are the image's kernel's."""
    kernel = re.search(r" linux-image-([0-9]\S*) (\S+) ", image).groups()
    headers = re.findall(r" linux-headers-([0-9]\S*-amd64) (\S+) ", modules)
    return [] if headers == [kernel] else [f"modules.lock has headers of {headers}, packages.lock the kernel {kernel}"]


def check_lock(folder, name, text=None):
    """Findings about a lock, or about another text of it."""
    if text is None:
        text = read(folder, name + ".lock")
    with open(os.path.join(folder, name + ".list"), encoding="ascii") as f:
        wanted = re.sub(r"#.*", "", f.read()).split()
    out, names = [], []
    for line in text.splitlines():
        m = re.fullmatch(r"[0-9a-f]{64} ([a-z0-9][a-z0-9+.-]+) (\S+) (amd64|all)", line)
        if m:
            names.append(m.group(1))
        else:
            out.append(f"not a line of a lock: {line}")
    out += [f"{n} is there twice" for n in set(names) if names.count(n) > 1]
    out += [f"{n} is wanted and not locked" for n in wanted if n not in names]
    out += [f"{n} has no place in the image" for n in names if n in ("apt", "openssh-server", "tandem", "tandemctl")]
    return out


def sbom(folder, status, sums):
    with tempfile.TemporaryDirectory() as work:
        for name, text in (("status", status), ("sums", sums)):
            with open(os.path.join(work, name), "w", encoding="ascii") as f:
                f.write(text)
        r = subprocess.run([os.path.join(folder, "sbom"), work + "/status", work + "/sums", "1.0"], capture_output=True,
                           text=True, check=True, env=dict(os.environ, SOURCE_DATE_EPOCH="1700000000"))
    return r.stdout


def main():
    folder = os.path.join(sys.argv[1], "deploy/image")
    findings = check_lock(folder, "packages") + check_lock(folder, "modules")
    good, modules = read(folder, "packages.lock"), read(folder, "modules.lock")
    findings += check_kernel(good, modules)
    assert check_kernel(good, re.sub(r"( linux-headers-6\S*)-amd64", r"\1-1-amd64", modules)), "other headers passed"
    for bad in (good + good.splitlines()[0] + "\n", re.sub(r".* systemd .*\n", "", good), good.replace(" amd64", " arm64", 1)):
        assert check_lock(folder, "packages", bad), "a bad lock passed"

    sums = "ab" * 32 + "  busybox_1%3a1.35.0-4_amd64.deb\n"
    text = sbom(folder, STATUS, sums)
    assert text == sbom(folder, STATUS, sums)
    doc = json.loads(text)
    assert doc["spdxVersion"] == "SPDX-2.3" and doc["creationInfo"]["created"] == "2023-11-14T22:13:20Z", doc
    found = {p["name"]: p for p in doc["packages"]}
    assert set(found) == {"busybox", "libstdc++6"}, found
    assert found["busybox"]["checksums"] == [{"algorithm": "SHA256", "checksumValue": "ab" * 32}]
    assert found["busybox"]["versionInfo"] == "1:1.35.0-4" and "gcc-12" in found["libstdc++6"]["sourceInfo"]
    ids = [p["SPDXID"] for p in doc["packages"]]
    assert all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", i) for i in ids) and len(set(ids)) == len(ids), ids
    print("\n".join(findings) or "the locks are whole, the SBOM agrees with dpkg")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
