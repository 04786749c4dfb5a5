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
esac"""
TANDEMCTL = """case "$1" in
drain) echo drain >>"$HERE/calls" ;;
show) echo '{"requests": {"running": 0}}' ;;
esac"""
STATUS = """{"slots": [{"root.0": {"boot_status": "good", "slot_status": {}}},
 {"root.1": {"boot_status": "%s", "slot_status": {"bundle": {"version": "3.0"}}}}]}"""


def case(script, name, want_rc, want_said, want_calls, bundle="2.0", plugged=90000000, state="bad", install="good", there=True):
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
        medium = os.path.join(here, "update.raucb")
        if there:
            with open(medium, "w", encoding="ascii"):
                pass
        env = {"PATH": here + ":" + os.environ["PATH"], "HERE": here, "BUNDLE": bundle, "PLUGGED": str(plugged),
               "INSTALL": install, "TANDEM_RELEASE": os.path.join(here, "os-release")}
        r = subprocess.run([script, medium], capture_output=True, text=True, check=False, env=env, timeout=30)
        calls = ""
        if os.path.exists(os.path.join(here, "calls")):
            with open(os.path.join(here, "calls"), encoding="ascii") as f:
                calls = " ".join(line.strip() for line in f if "status" not in line)
        assert r.returncode == want_rc and want_said in r.stdout and not r.stderr, (name, r)
        assert calls == want_calls, (name, calls)


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
    print("update: 8 cases")


if __name__ == "__main__":
    main()
