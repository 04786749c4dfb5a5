#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An operator's kernel modules on their way into the image: what a DKMS package becomes, and which modules are signed
or refused.  Stand-ins for the compiler and the kernel's programs; the real ones are in the scenario `drivers` of
tests/e2e/image.  usage: image_modules.py ROOT"""
import os
import shutil
import subprocess
import sys
import tempfile

KERNEL = "6.1.0-1-amd64"
CONTROL = """Package: {name}
Version: 1.0-2
Architecture: all
Maintainer: operator <o@example.org>
Provides: driver-kernel-1.0
Depends: {depends}
Description: a driver
 as source
"""
# dkms build: `unshare ... sh WORKSHOP SOURCE KERNEL`.
UNSHARE = """while [ "$1" != sh ]; do shift; done
set -- $(printf '%s\\n' "$@" | tail -n 3)
[ "$2" != broken-1 ] || { mkdir -p "$1/var/lib/dkms/x"; echo "error: no such header" >"$1/var/lib/dkms/x/make.log"; exit 10; }
to=$1/var/lib/dkms/${2%-*}/${2##*-}/$3/x86_64/module
mkdir -p "$to" && echo "compiled $(cat "$1/usr/src/$2/driver.c")" >"$to/${2%-*}.ko"
"""
# What the kernel's programs say of a module is in its text: "for KERNEL", "needs SYMBOL".
CHROOT = """root=$1; shift
case "$*" in
"modinfo -F vermagic "*) sed -n 's/^for \\(.*\\)/\\1 SMP/p' "$root$4" ;;
"modinfo -F signer "*) sed -n 's/^signed by //p' "$root$4" ;;
"depmod "*) cd "$root"; grep -r '^needs ' lib/modules | sed 's#^\\(.*\\):needs \\(.*\\)#depmod: WARNING: /\\1 needs unknown symbol \\2#' >&2 ;;
esac
"""
SIGN_FILE = '[ "$1 $2 $3" = "sha256 keys/db.key keys/db.crt" ] && echo "signed by Tandem db" >>"$4"\n'
STRIP = 'sed -i "/^signed by/d" "$2"\n'


def put(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as f:
        f.write(text)
    os.chmod(path, mode)


def read(path):
    with open(path, encoding="ascii") as f:
        return f.read()


def run(here, *args):
    env = {"PATH": here + "/bin:" + os.environ["PATH"], "SOURCE_DATE_EPOCH": "1700000000"}
    return subprocess.run(args, capture_output=True, text=True, check=False, cwd=here, env=env, timeout=60)


def package(here, name, depends, files):
    tree = f"{here}/tree-{name}"
    put(tree + "/DEBIAN/control", CONTROL.format(name=name, depends=depends))
    put(tree + "/DEBIAN/postinst", "#!/bin/sh\ndkms install\n", 0o755)
    for path, text in files.items():
        put(tree + path, text)
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, f"{here}/drivers/{name}_1.0-2_all.deb"],
                   check=True, capture_output=True)


def field(deb, name):
    return subprocess.run(["dpkg-deb", "-f", deb, name], check=True, capture_output=True, text=True).stdout.strip()


def packages_become_modules(script):
    with tempfile.TemporaryDirectory() as here:
        put(here + "/bin/unshare", "#!/bin/sh\n" + UNSHARE, 0o755)
        os.makedirs(here + "/workshop/usr/src")
        os.makedirs(here + "/drivers")
        package(here, "driver-dkms", "firmware-driver (= 1.0-2) | other, dkms (>= 3.0.3-4~), kmod, dkms-aid",
                {"/usr/src/driver-1.0/dkms.conf": "", "/usr/src/driver-1.0/driver.c": "text\n", "/etc/driver.conf": "x\n"})
        package(here, "only-dkms", "dkms", {"/usr/src/only-2/dkms.conf": "", "/usr/src/only-2/driver.c": "more\n"})
        package(here, "firmware-driver", "kmod", {"/lib/firmware/driver": "bytes\n"})
        r = run(here, script, "workshop", KERNEL, "drivers", "out")
        assert r.returncode == 0, r
        assert "driver-dkms: driver.ko" in r.stdout and "only-dkms: only.ko" in r.stdout, r.stdout
        made = here + "/out/driver-dkms_1.0-2_amd64.deb"
        assert field(made, "Depends") == "firmware-driver (= 1.0-2) | other, kmod, dkms-aid"
        assert field(made, "Provides") == "driver-kernel-1.0" and field(made, "Description") == "a driver\n as source"
        assert field(here + "/out/only-dkms_1.0-2_amd64.deb", "Depends") == ""
        subprocess.run(["dpkg-deb", "-R", made, here + "/made"], check=True)
        assert read(f"{here}/made/usr/lib/modules/{KERNEL}/updates/dkms/driver.ko") == "compiled text\n"
        assert os.path.exists(here + "/made/etc/driver.conf") and not os.path.exists(here + "/made/usr/src/driver-1.0")
        assert os.listdir(here + "/made/DEBIAN") == ["control"]  # nothing that would run
        with open(here + "/drivers/firmware-driver_1.0-2_all.deb", "rb") as a, \
                open(here + "/out/firmware-driver_1.0-2_all.deb", "rb") as b:
            assert a.read() == b.read()  # as it came
        package(here, "broken-dkms", "dkms", {"/usr/src/broken-1/dkms.conf": ""})
        r = run(here, script, "workshop", KERNEL, "drivers", "out")
        assert r.returncode == 1 and "broken-dkms does not build for " + KERNEL in r.stderr and "no such header" in r.stderr, r


def modules_are_signed_or_refused(script):
    good = f"for {KERNEL}\n"
    cases = (("signed", {"updates/dkms/a.ko": good, "extra/b.ko": good + "signed by Somebody\n"}, KERNEL, None),
             ("compressed", {"updates/a.ko.xz": good}, KERNEL, "a.ko.xz is compressed"),
             ("of another kernel", {"updates/a.ko": "for 6.1.0-2-amd64\n"}, KERNEL, "a.ko is for 6.1.0-2-amd64"),
             ("in another kernel's folder", {"updates/a.ko": good}, "6.1.0-2-amd64", "modules for 6.1.0-2-amd64"),
             ("needs what is not there", {"updates/a.ko": good + "needs v4l2_open\n"}, KERNEL, "a.ko cannot be loaded"))
    for name, modules, folder, refused in cases:
        with tempfile.TemporaryDirectory() as here:
            for program, text in (("bin/chroot", CHROOT), ("bin/strip", STRIP), ("kbuild/sign-file", SIGN_FILE)):
                put(f"{here}/{program}", "#!/bin/sh\n" + text, 0o755)
            put(here + "/kbuild/Module.symvers", "")
            os.makedirs(here + "/root/boot")
            debian = f"lib/modules/{KERNEL}/kernel/debian.ko"
            put(f"{here}/root/{debian}", good + "signed by Debian\nneeds what_is_left_out\n")
            put(f"{here}/root/var/lib/dpkg/info/linux-image-{KERNEL}.list", f"/.\n/{debian}\n/lib/modules/{KERNEL}/kernel/gone.ko\n")
            for path, text in modules.items():
                put(f"{here}/root/lib/modules/{folder}/{path}", text)
            r = run(here, script, "root", KERNEL, "kbuild", "keys")
            if refused:
                assert r.returncode == 1 and refused in r.stderr, (name, r)
                continue
            assert r.returncode == 0 and r.stdout.count(": Tandem db") == len(modules), (name, r)
            for path in modules:
                assert read(f"{here}/root/lib/modules/{KERNEL}/{path}") == good + "signed by Tandem db\n", (name, path)
            assert "signed by Debian" in read(f"{here}/root/{debian}")


def main():
    if not shutil.which("dpkg-deb"):
        sys.exit(77)
    image = os.path.join(os.path.realpath(sys.argv[1]), "deploy/image")
    packages_become_modules(image + "/modules")
    modules_are_signed_or_refused(image + "/sign")
    print("modules: two packages built, one copied, one refused; five kinds of modules signed or refused")


if __name__ == "__main__":
    main()
