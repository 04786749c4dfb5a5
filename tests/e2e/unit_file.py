# SPDX-License-Identifier: Apache-2.0
"""What a unit file lets its service do, read from the file."""
import re
import subprocess


def filtered(unit):
    """The system calls that a unit's SystemCallFilter= lines allow."""
    sets, group = {}, None
    text = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager"], capture_output=True,
                          text=True, check=True).stdout
    for line in text.splitlines():
        if line.startswith("@"):
            group = sets.setdefault(line.strip(), set())
        elif re.match(r"    [@\w]", line) and group is not None:
            group.add(line.strip())

    def members(name):
        if not name.startswith("@"):
            return {name}
        return set().union(*(members(m) for m in sets[name]))

    allowed = set()
    with open(unit, encoding="utf-8") as f:
        for line in re.findall(r"(?m)^SystemCallFilter=(.*)$", f.read()):
            for name in line.lstrip("~").split():
                allowed = allowed - members(name) if line.startswith("~") else allowed | members(name)
    return allowed | members("@default")


def values(unit, key):
    """The words of all lines of a key that takes a list."""
    with open(unit, encoding="utf-8") as f:
        return [word for line in re.findall(rf"(?m)^{key}=(.*)$", f.read()) for word in line.split()]
