#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The image's update and its proof, with stand-ins for RAUC, systemd and the appliance.  usage: image_update.py ROOT
Exit 77 without jq."""
import os
import shutil
import subprocess
import sys
import tempfile

RAUC = """case "$1" in
info) [ "$BUNDLE" != bad ] || { echo "signature verification failed: error:02"; echo "01:error:17:CMS"; exit 1; }; echo "RAUC_MF_VERSION='$BUNDLE'" ;;
status) [ "$2" = mark-good ] || cat "$HERE/status.json"; echo "rauc $*" >>"$HERE/calls" ;;
install) echo "rauc install" >>"$HERE/calls"; [ "$INSTALL" = good ] || { echo "LastError: no space"; echo "Installing failed"; exit 1; } ;;
esac"""
SYSTEMCTL = """case "$1" in
show) case "$4" in *device) echo "$PLUGGED" ;; *) echo 50000000 ;; esac ;;
reboot) echo reboot >>"$HERE/calls" ;;
is-failed) [ -n "${FAILED:-}" ] ;;
esac"""
TANDEMCTL = """case "$1" in
drain) echo drain >>"$HERE/calls"; case "$3" in *older*) echo allowed >>"$HERE/calls" ;; esac ;;
show) [ "$2" != config ] || { echo "{\\"update\\": {\\"older\\": \\"$ALLOWED\\"}}"; exit; }; echo '{"requests": {"running": 0}}' ;;
esac"""
STATUS = """{"slots": [{"root.0": {"boot_status": "good", "slot_status": {}}},
 {"root.1": {"boot_status": "%s", "slot_status": {"bundle": {"version": "3.0"}}}}]}"""


def case(script, name, want_rc, want_said, want_calls, bundle="2.0", plugged=90000000, state="bad", install="good", there=True,
         newest=None, allowed=""):
    with tempfile.TemporaryDirectory() as here:
        for program, text in (("rauc", RAUC), ("systemctl", SYSTEMCTL), ("tandemctl", TANDEMCTL)):
            path = os.path.join(here, program)
            with open(path, "w", encoding="ascii") as f:
                f.write("#!/bin/sh\n" + text + "\n")
            os.chmod(path, 0o755)
        with open(os.path.join(here, "status.json"), "w", encoding="ascii") as f:
            f.write(STATUS % state)
        with open(os.path.join(here, "os-release"), "w", encoding="ascii") as f:
            f.write("IMAGE_ID=tandem\nIMAGE_VERSION=1.0\n")
        if newest:
            with open(os.path.join(here, "newest"), "w", encoding="ascii") as f:
                f.write(newest + "\n")
        medium = os.path.join(here, "update.raucb")
        if there:
            with open(medium, "w", encoding="ascii"):
                pass
        env = {"PATH": here + ":" + os.environ["PATH"], "HERE": here, "BUNDLE": bundle, "PLUGGED": str(plugged),
               "INSTALL": install, "ALLOWED": allowed, "TANDEM_NEWEST": os.path.join(here, "newest"), "TANDEM_RELEASE": os.path.join(here, "os-release")}
        r = subprocess.run([script, medium], capture_output=True, text=True, check=False, env=env, timeout=30)
        calls = ""
        if os.path.exists(os.path.join(here, "calls")):
            with open(os.path.join(here, "calls"), encoding="ascii") as f:
                calls = " ".join(line.strip() for line in f if "status" not in line)
        assert r.returncode == want_rc and want_said in r.stdout and not r.stderr, (name, r)
        assert calls == want_calls, (name, calls)


def proof(script, name, newest, want, failed=""):
    """A slot of version 1.0 that gives tokens: what is kept as the newest afterwards.  failed: its first boot did."""
    with tempfile.TemporaryDirectory() as here:
        for program, text in (("rauc", RAUC), ("systemctl", SYSTEMCTL), ("curl", "echo '{\"usage\": {\"completion_tokens\": 8}}'")):
            with open(os.path.join(here, program), "w", encoding="ascii") as f:
                f.write("#!/bin/sh\n" + text + "\n")
            os.chmod(os.path.join(here, program), 0o755)
        for file, text in (("os-release", "IMAGE_VERSION=1.0\n"), ("newest", newest)):
            if text is not None:
                with open(os.path.join(here, file), "w", encoding="ascii") as f:
                    f.write(text)
        env = {"PATH": here + ":" + os.environ["PATH"], "HERE": here, "TANDEM_RELEASE": os.path.join(here, "os-release"),
               "TANDEM_NEWEST": os.path.join(here, "newest"), "FAILED": failed, "TANDEM_GOOD_SECONDS": "2" if failed else "30"}
        r = subprocess.run([script], capture_output=True, text=True, check=False, env=env, timeout=40)
        said = "is not what appliance.json says" if failed else "gave 8 tokens and is good"
        assert r.returncode == (1 if failed else 0) and said in r.stdout, (name, r)
        with open(os.path.join(here, "newest"), encoding="ascii") as f:
            kept = f.read()
        assert kept == want, (name, kept)


def main():
    if not shutil.which("jq"):
        sys.exit(77)
    script = os.path.join(sys.argv[1], "deploy/image/files/usr/libexec/tandem/update")
    case(script, "a newer one", 0, "restarting into 2.0", "rauc install drain reboot")
    case(script, "no bundle", 1, "refused: the medium has no update.raucb", "", there=False)
    case(script, "bad signature", 1, "refused: signature verification failed", "", bundle="bad")
    case(script, "what runs", 0, "nothing to do: 1.0 runs", "", bundle="1.0")
    case(script, "tried, left in place", 1, "refused: 3.0 was tried", "", bundle="3.0", plugged=5000000)
    case(script, "tried, put in again", 0, "restarting into 3.0", "rauc install drain reboot", bundle="3.0")
    case(script, "in the other slot and good", 0, "restarting into 3.0", "rauc install drain reboot", bundle="3.0", plugged=5000000,
         state="good")
    case(script, "no room", 1, "failed, 1.0 goes on: no space", "rauc install", install="bad")
    # The other slot, as after a step back, is newer than what runs: then that one counts.
    case(script, "older than what runs", 1, "refused: 0.9 is older than 1.0", "", bundle="0.9")
    case(script, "as two digits", 0, "restarting into 1.10", "rauc install drain reboot", bundle="1.10", newest="1.9")
    case(script, "older than what served", 1, "refused: 2.0 is older than 3.1", "", newest="3.1")
    case(script, "what served, again", 0, "restarting into 2.0", "rauc install drain reboot", newest="2.0")
    case(script, "a candidate of what served", 1, "refused: 2.0~rc1 is older than 2.0", "", bundle="2.0~rc1", newest="2.0")
    case(script, "older, allowed", 0, "restarting into 2.0", "rauc install drain allowed reboot", newest="3.1", allowed="2.0")
    case(script, "older, another allowed", 1, "refused: 2.0 is older than 3.1", "", newest="3.1", allowed="2.1")
    case(script, "what is kept is behind", 1, "refused: 0.9 is older than 1.0", "", bundle="0.9", newest="0.5")
    good = os.path.join(sys.argv[1], "deploy/image/files/usr/libexec/tandem/good")
    proof(good, "the first", None, "1.0\n")
    proof(good, "newer than before", "0.9\n", "1.0\n")
    proof(good, "after a step back", "1.1\n", "1.1\n")
    proof(good, "after a torn write", "", "1.0\n")
    proof(good, "of a machine that is not configured", "0.9\n", "0.9\n", failed="yes")
    print("update: 16 cases, proof: 5")


if __name__ == "__main__":
    main()
