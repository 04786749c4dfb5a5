#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The image's update and its proof, with stand-ins for RAUC, systemd and the appliance.  usage: image_update.py ROOT
Exit 77 without jq."""
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile

RAUC = """case "$1" in
info) [ "$BUNDLE" != bad ] || { echo "signature verification failed: error:02"; echo "01:error:17:CMS"; exit 1; }; echo "RAUC_MF_VERSION='$BUNDLE'"; echo "RAUC_IMAGE_DIGEST_0='of-$BUNDLE'" ;;
status) [ "$2" = mark-good ] || cat "$HERE/status.json"; echo "rauc $*" >>"$HERE/calls" ;;
install) echo "rauc install" >>"$HERE/calls"; RAUC_IMAGE_DIGEST_1=of-${SHOWN:-$BUNDLE} "$HERE/judged" 2>/dev/null ||
    { echo "LastError: Pre-install handler error"; exit 1; }
  [ "$INSTALL" = good ] || { echo "LastError: no space"; echo "Installing failed"; exit 1; } ;;
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
         newest=None, allowed="", shown=""):
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
        shutil.copy(os.path.join(os.path.dirname(script), "judged"), here)
        env = {"PATH": here + ":" + os.environ["PATH"], "HERE": here, "BUNDLE": bundle, "PLUGGED": str(plugged),
               "SHOWN": shown, "TANDEM_JUDGED": os.path.join(here, "of"),
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


def handler(script):
    """What RAUC's handler lets pass: the one image that was judged."""
    with tempfile.TemporaryDirectory() as here:
        judged = os.path.join(here, "of")
        for text, digests, want in (("ab", ["ab"], 0), ("ab", ["ac"], 1), ("ab", [""], 1), ("", [""], 1), (None, [""], 1), (None, ["ab"], 1),
                                    ("ab", [], 1), ("ab", ["ab", "ac"], 1), ("", [], 1)):
            if text is not None:
                with open(judged, "w", encoding="ascii") as f:
                    f.write(text + "\n")
            elif os.path.exists(judged):
                os.unlink(judged)
            env = {"PATH": os.environ["PATH"], "TANDEM_JUDGED": judged,
                   **{f"RAUC_IMAGE_DIGEST_{i + 1}": d for i, d in enumerate(digests)}}
            r = subprocess.run([script], capture_output=True, text=True, check=False, env=env, timeout=30)
            assert r.returncode == want and bool(r.stderr) == bool(want), (text, digests, r)


CONF = """[system]
compatible=tandem-amd64
bootloader=custom
bundle-formats=plain
statusfile={here}/status
mountprefix={here}/mnt
[handlers]
bootloader-custom-backend={here}/boot
pre-install={script}/judged
[keyring]
path={here}/crt
[slot.root.0]
device={here}/slot-a
type=raw
bootname=a
[slot.root.1]
device={here}/slot-b
type=raw
bootname=b
"""
# A stick that shows the bundle NEXT once somebody has read it.
WRAP = """#!/bin/sh
{rauc} --conf={here}/system.conf "$@"
rc=$?
[ "$1" != info ] || [ -z "$NEXT" ] || cp "$NEXT" "$3"
exit $rc
"""
RUN = """export DBUS_STARTER_BUS_TYPE=session
{rauc} --conf={here}/system.conf --override-boot-slot=a service >{here}/service.log 2>&1 &
p=$!
for _ in $(seq 100); do ! rauc status >/dev/null 2>&1 || break; sleep 0.1; done
{update} {here}/update.raucb
rc=$?
kill $p
exit $rc
"""


def swapped(script):
    """RAUC itself, a folder for the disk: 2.0 is judged, and the stick then gives 0.9 or a third, all signed by us; False: not here.
    In its plain format, as there may be no dm-verity: what RAUC tells its handlers does not depend on it."""
    rauc = shutil.which("rauc")
    if not rauc or not shutil.which("dbus-run-session") or not shutil.which("mksquashfs") or os.geteuid():
        return False
    with tempfile.TemporaryDirectory() as here:
        def quiet(*words):
            return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        made = quiet("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=t/", "-keyout", here + "/key", "-out", here + "/crt")
        assert made.returncode == 0, made
        roots = {}
        for version in ("2.0", "0.9", "2.1"):
            folder = os.path.join(here, version)
            os.makedirs(folder)
            roots[version] = hashlib.sha512(version.encode()).digest() * 1024
            with open(folder + "/root.img", "wb") as f:
                f.write(roots[version])
            with open(folder + "/manifest.raucm", "w", encoding="ascii") as f:
                f.write(f"[update]\ncompatible=tandem-amd64\nversion={version}\n[image.root]\nfilename=root.img\n")
            made = quiet(rauc, f"--cert={here}/crt", f"--key={here}/key", "bundle", folder, folder + ".raucb")
            assert made.returncode == 0, made
        probe = os.path.join(here, "probe")
        os.makedirs(probe)
        if quiet("mount", "-o", "loop,ro", "-t", "squashfs", here + "/2.0.raucb", probe).returncode:
            return False
        quiet("umount", probe)
        os.makedirs(here + "/mnt")
        os.makedirs(here + "/bin")
        words = {"here": here, "rauc": rauc, "script": os.path.dirname(script), "update": script}
        for name, text in (("system.conf", CONF), ("bin/rauc", WRAP), ("run", RUN), ("bin/tandemctl", "#!/bin/sh\n" + TANDEMCTL),
                           ("bin/systemctl", "#!/bin/sh\n" + SYSTEMCTL), ("os-release", "IMAGE_VERSION=1.0\n"),
                           ("boot", "#!/bin/sh\necho $* >>{here}/boots\ncase $1 in get-primary) echo a ;; get-state) echo good ;; esac\n")):
            path = os.path.join(here, name)
            with open(path, "w", encoding="ascii") as f:
                f.write(text if text in (TANDEMCTL, SYSTEMCTL) or "$HERE" in text else text.format(**words))
            os.chmod(path, 0o755)
        for after, want in (("", 0), ("0.9", 1), ("2.1", 1)):
            for slot in ("slot-a", "slot-b"):
                with open(os.path.join(here, slot), "wb") as f:
                    f.write(bytes(1 << 20))
            for old in ("boots", "status", "calls"):
                if os.path.exists(os.path.join(here, old)):
                    os.unlink(os.path.join(here, old))
            shutil.copy(here + "/2.0.raucb", here + "/update.raucb")
            env = {"PATH": here + "/bin:" + os.environ["PATH"], "HERE": here, "PLUGGED": "90000000", "ALLOWED": "",
                   "NEXT": f"{here}/{after}.raucb" if after else "", "TANDEM_JUDGED": here + "/of", "TANDEM_NEWEST": here + "/newest",
                   "TANDEM_RELEASE": here + "/os-release"}
            r = subprocess.run(["dbus-run-session", "--", "sh", here + "/run"], capture_output=True, text=True, check=False, env=env, timeout=120)
            with open(here + "/service.log", encoding="utf-8") as f:
                log = f.read()
            assert r.returncode == want, (after, r, log)
            with open(here + "/slot-b", "rb") as f:
                slot = f.read()
            boots = ""
            if os.path.exists(here + "/boots"):
                with open(here + "/boots", encoding="ascii") as f:
                    boots = f.read()
            if after:
                assert "failed, 1.0 goes on: Pre-install handler error" in r.stdout, r
                assert "another bundle than the one that was judged" in log, log
                assert slot == bytes(1 << 20) and "set-" not in boots, (after, boots)  # nothing was begun
            else:
                assert slot.startswith(roots["2.0"]) and "set-primary b" in boots, (boots, log)
    return True


def main():
    if not shutil.which("jq"):
        sys.exit(77)
    script = os.path.realpath(os.path.join(sys.argv[1], "deploy/image/files/usr/libexec/tandem/update"))
    case(script, "a newer one", 0, "restarting into 2.0", "rauc install drain reboot")
    case(script, "no bundle", 1, "refused: the medium has no update.raucb", "", there=False)
    case(script, "bad signature", 1, "refused: signature verification failed", "", bundle="bad")
    case(script, "what runs", 0, "nothing to do: 1.0 runs", "", bundle="1.0")
    case(script, "tried, left in place", 1, "refused: 3.0 was tried", "", bundle="3.0", plugged=5000000)
    case(script, "tried, put in again", 0, "restarting into 3.0", "rauc install drain reboot", bundle="3.0")
    case(script, "in the other slot and good", 0, "restarting into 3.0", "rauc install drain reboot", bundle="3.0", plugged=5000000,
         state="good")
    case(script, "no room", 1, "failed, 1.0 goes on: no space", "rauc install", install="bad")
    case(script, "another for the second reader", 1, "failed, 1.0 goes on: Pre-install handler error", "rauc install", shown="0.9")
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
    handler(os.path.join(os.path.dirname(good), "judged"))
    done = "with RAUC itself" if swapped(script) else "without RAUC, a bus or loop devices here"
    print(f"update: 17 cases, proof: 5, a stick that changes {done}")


if __name__ == "__main__":
    main()
