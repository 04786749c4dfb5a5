#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""deploy/bundle/start: what it gives to tandemd, and which bundle it refuses.  deploy/bundle/ship: one file from
two places.

usage: bundle.py.  The program it starts here only prints what it was given."""
import os
import shutil
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "..", "..", "..", "deploy", "bundle")


def make(folder):
    os.chmod(folder, 0o755)
    for d in ("bin", "lib", "drivers"):
        os.makedirs(os.path.join(folder, d), mode=0o755)
    for name in ("start", "demo.json"):
        shutil.copy2(os.path.join(SOURCE, name), folder)
        os.chmod(os.path.join(folder, name), 0o755)
    program = os.path.join(folder, "bin", "tandemd")
    with open(program, "w", encoding="utf-8") as f:
        f.write('#!/bin/sh\necho "$LD_LIBRARY_PATH|$(umask)|$*"\n')
    os.chmod(program, 0o755)


def start(folder, *args):
    env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    return subprocess.run([os.path.join(folder, "start"), *args], capture_output=True, text=True,
                          check=False, env=env)


def its_own_libraries_and_state(folder):
    r = start(folder, "--no-tap", "--set", "sched.gap_ms=30")
    libraries, umask, words = r.stdout.strip().split("|")
    assert r.returncode == 0 and libraries == folder + "/lib" and umask == "0077", r
    assert f"--set state.dir={folder}/state" in words and "port.kind=none" in words, words
    assert words.endswith("--set sched.gap_ms=30"), words
    assert "port.kind" not in start(folder).stdout


def a_bundle_that_others_may_write_to_is_refused(folder):
    for part in (".", "bin", "lib", "drivers", "bin/tandemd", "start"):
        path = os.path.join(folder, part)
        mode = os.stat(path).st_mode & 0o777
        for bit in (0o002, 0o020):
            os.chmod(path, mode | bit)
            r = start(folder, "--no-tap")
            assert r.returncode == 1 and "others may write" in r.stderr and not r.stdout, (part, r)
        os.chmod(path, mode)
    assert start(folder, "--no-tap").returncode == 0


def a_bundle_that_is_somebody_elses_is_refused(folder):
    """As tar leaves it where root unpacks what another packed."""
    if os.geteuid() != 0:
        return
    os.symlink("tandemd", os.path.join(folder, "bin", "link"))
    for part in (".", "bin", "lib", "drivers", "bin/tandemd", "bin/link", "start", "demo.json"):
        path = os.path.join(folder, part)
        os.chown(path, 65534, 0, follow_symlinks=False)
        r = start(folder, "--no-tap")
        assert r.returncode == 1 and "others may write" in r.stderr and not r.stdout, (part, r)
        os.chown(path, 0, 0, follow_symlinks=False)
    assert start(folder, "--no-tap").returncode == 0


def a_program_is_the_same_file_wherever_it_was_built(folder):
    """As nvcc does it: an id of the folder in a name, in front of one of the content, which stays."""
    shipped = []
    for place, code in (("a", "0badcafe"), ("elsewhere", "9e79d239")):
        os.makedirs(os.path.join(folder, place))
        source, built, out = (os.path.join(folder, place, x) for x in ("one.c", "built", "shipped"))
        with open(source, "w", encoding="ascii") as f:
            f.write('#include <stdio.h>\n'
                    f'int main(void) {{ return puts("_ZN42_INTERNAL_{code}_11_bf16_d64_cu_8ede919e4name") < 0; }}\n')
        subprocess.run(["cc", "-g", "-Wl,--build-id", "-o", built, source], check=True)
        subprocess.run([os.path.join(SOURCE, "ship"), built, out], check=True)
        with open(out, "rb") as f:
            shipped.append(f.read())
    assert shipped[0] == shipped[1]
    said = subprocess.run([out], capture_output=True, text=True, check=True).stdout
    assert said == "_ZN42_INTERNAL_00000000_11_bf16_d64_cu_8ede919e4name\n", said


def drivers_are_not_loaded_from_below_an_open_folder(folder):
    open_to_all = os.path.join(folder, "open")
    inside = os.path.join(open_to_all, "private", "bundle")
    os.makedirs(inside)
    make(inside)
    for mode in (0o777, 0o1777):
        os.chmod(open_to_all, mode)
        r = start(inside)
        assert r.returncode == 1 and f"{open_to_all} is open to everybody" in r.stderr, r
        assert not r.stdout, r
        assert start(inside, "--no-tap").returncode == 0
    os.chmod(open_to_all, 0o775)
    assert start(inside).returncode == 0


def main():
    for fact in (its_own_libraries_and_state, a_bundle_that_others_may_write_to_is_refused,
                 a_bundle_that_is_somebody_elses_is_refused,
                 drivers_are_not_loaded_from_below_an_open_folder, a_program_is_the_same_file_wherever_it_was_built):
        with tempfile.TemporaryDirectory(dir=os.path.expanduser("~")) as folder:
            make(folder)
            fact(folder)


if __name__ == "__main__":
    main()
