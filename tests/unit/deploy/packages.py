#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Debian packages hold what they should and nothing of the machine that built them.
usage: packages.py ROOT BUILD

CPack makes them from what the build has made (target package_files).  Exit
77 without dpkg-deb; lintian and man judge where they are."""
import glob
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile

WANT = {
    "tandem": ["usr/sbin/tandemd", "usr/libexec/tandem/tandemd", "usr/libexec/tandem/tandem-exec",
               "usr/libexec/tandem/hugepages", "usr/libexec/tandem/nic", "usr/libexec/tandem/agent",
               "usr/libexec/tandem/first-boot", "usr/libexec/tandem/health",
               "lib/systemd/system/tandem-first-boot.service", "lib/systemd/system/tandem-health.service",
               "usr/share/man/man5/tandem.appliance.5.gz", "usr/share/doc/tandem/appliance.md",
               "lib/systemd/system/tandemd.service", "lib/systemd/system/tandem-hugepages.service",
               "lib/systemd/system/tandem-nic@.service", "usr/lib/sysusers.d/tandem.conf",
               "usr/lib/tmpfiles.d/tandem.conf", "etc/tandem/tandem.json", "etc/default/tandem",
               "usr/share/man/man8/tandemd.8.gz", "usr/share/man/man5/tandem.conf.5.gz",
               "usr/share/doc/tandem/metrics.md", "usr/share/doc/tandem/threats.md",
               "usr/share/doc/tandem/examples/haproxy.cfg", "usr/share/doc/tandem/examples/tap.conf"],
    "tandemctl": ["usr/bin/tandemctl", "usr/share/man/man1/tandemctl.1.gz",
                  "usr/share/bash-completion/completions/tandemctl"],
    "tandem-monitoring": ["usr/share/tandem/monitoring/prometheus/alerts.rules.yml",
                          "usr/share/tandem/monitoring/runbooks/TandemDown.md"],
    "libtandem-dev": ["usr/include/tandem/net/client/client.h", "usr/include/tandem/telemetry/flight/flight.h",
                      "usr/include/tandem/appliance/base/status.h",
                      "usr/share/doc/libtandem-dev/examples/ask.c"],
}
FOLDERS = ("etc/default", "etc/tandem", "lib/systemd/system", "usr/bin", "usr/sbin", "usr/lib/debug",
           "usr/lib/sysusers.d", "usr/lib/tmpfiles.d", "usr/libexec/tandem", "usr/share/man",
           "usr/share/tandem", "usr/share/doc", "usr/share/bash-completion/completions", "usr/include/tandem",
           "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu")


def run(*args, **how):
    return subprocess.run(args, capture_output=True, text=True, check=False, **how)


def pack(build, out):
    r = run("cpack", "-B", out, cwd=build)
    assert r.returncode == 0, r.stdout + r.stderr
    return {re.match(r"[^_]+", os.path.basename(p)).group(): p
            for p in sorted(glob.glob(os.path.join(out, "*.deb")) + glob.glob(os.path.join(out, "*.ddeb")))}


def check_binary(path, name, paths, out):
    with open(path, "rb") as f:
        data = f.read()
    for bad in paths:
        if bad.encode() in data:
            out.append(f"{name}: holds the path {bad}")
    dynamic = run("readelf", "-d", path).stdout
    for word, what in ((r"\((RPATH|RUNPATH)\)", "has an rpath"),
                       (r"NEEDED.*\[lib(cuda|nvidia|cudart)\b", "needs the GPU's libraries to start")):
        if re.search(word, dynamic):
            out.append(f"{name}: {what}")
    for word, what in (("BIND_NOW", "binds late"), ("PIE", "is at a fixed address")):
        if word not in dynamic:
            out.append(f"{name}: {what}")
    if ".debug_info" in run("readelf", "-SW", path).stdout:
        out.append(f"{name}: is not stripped")
    out += [f"{name}: {what}" for what in soft(run("readelf", "-W", "--dyn-syms", path).stdout,
                                                run("readelf", "-Wl", path).stdout)]


def soft(symbols, segments):
    """What of a program's hardening lacks, by what readelf says of it."""
    stack = re.search(r"(?m)^\s+GNU_STACK .*$", segments)
    return [what for what, is_there in (
        ("has no stack protector", "__stack_chk_fail" in symbols),
        ("is not fortified", re.search(r"__\w+_chk(@|$)", symbols.replace("__stack_chk_fail", ""), re.M)),
        ("has no read-only relocations", "GNU_RELRO" in segments),
        ("has an executable stack", stack and "RWE" not in stack.group())) if not is_there]


def check_files(tree, package, paths, out):
    """An unpacked package: modes, places, conffiles, checksums, programs."""
    found = []
    for folder, folders, files in os.walk(tree):
        if folder == tree:
            folders.remove("DEBIAN")
        for name in folders + files:
            path = os.path.join(folder, name)
            short = os.path.relpath(path, tree)
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                found.append(short)
                continue
            if mode & 0o7022:
                out.append(f"{package}: {short} has mode {stat.filemode(mode)}")
            if stat.S_ISDIR(mode):
                continue
            found.append(short)
            if not short.startswith(FOLDERS):
                out.append(f"{package}: {short} is in no folder of ours")
            with open(path, "rb") as f:
                is_program = f.read(4) == b"\x7fELF"
            if is_program and "debug" not in short:
                check_binary(path, f"{package}: {short}", paths, out)
            is_executable = bool(mode & 0o111)
            if is_executable != bool(re.search(r"(^|/)s?bin/|libexec/", short)):
                out.append(f"{package}: {short} has mode {stat.filemode(mode)}")
    listed = ""
    if os.path.exists(os.path.join(tree, "DEBIAN/conffiles")):
        with open(os.path.join(tree, "DEBIAN/conffiles"), encoding="ascii") as f:
            listed = f.read()
    if sorted(listed.split()) != sorted("/" + n for n in found if n.startswith("etc/")):
        out.append(f"{package}: conffiles are not what lies in /etc")
    sums = run("md5sum", "--check", "--quiet", "DEBIAN/md5sums", cwd=tree)
    if sums.returncode:
        out.append(f"{package}: {sums.stdout}{sums.stderr}")
    return found


def check_starts(tree, files, out):
    """Every program that a unit starts is in the package, as is each page that it names."""
    for unit in glob.glob(os.path.join(tree, "lib/systemd/system/*")):
        with open(unit, encoding="utf-8") as f:
            text = f.read()
        for path in re.findall(r"(?m)^Exec\w+=/(\S+)", text) + re.findall(r"file:///(\S+)", text):
            if path not in files and path != "bin/kill":
                out.append(f"{os.path.basename(unit)}: {path} is not in the package")


def check_pages(tree, build, out):
    """The manual has every key, and groff no complaint."""
    pages = glob.glob(os.path.join(tree, "usr/share/man/*/*.gz"))
    for page in pages:
        text = run("gzip", "-dc", page).stdout
        if "@" in re.sub(r"\S+@\S+", "", text) and re.search(r"@[A-Z]+@", text):
            out.append(f"{page}: a mark of the template is left")
        if page.endswith("tandem.conf.5.gz"):
            told = run(os.path.join(build, "bin/tandemd"), "--help-config").stdout
            for key in re.findall(r"(?m)^(\w+\.\w+)", told):
                if f"\n.B {key}\n" not in text:
                    out.append(f"tandem.conf.5: no key {key}")
        if shutil.which("man") and shutil.which("groff"):
            r = run("man", "--warnings", "-l", "-Tutf8", page)
            if r.returncode or r.stderr.strip():
                out.append(f"{page}: {r.stderr.strip()}")


def unpack(path, folder):
    assert run("dpkg-deb", "-R", path, folder).returncode == 0, path
    return folder


def check(root, build):
    out = []
    with tempfile.TemporaryDirectory(prefix="tandem-packages-") as work:
        packages = pack(build, os.path.join(work, "a"))
        again = pack(build, os.path.join(work, "b"))
        if set(packages) - {"tandem-dbgsym", "tandemctl-dbgsym"} != set(WANT):
            out.append(f"packages: {sorted(packages)}")
        paths = [os.path.realpath(root), os.path.realpath(build)]
        for name, path in packages.items():
            with open(path, "rb") as f, open(again[name], "rb") as g:
                if f.read() != g.read():
                    out.append(f"{name}: two packagings of one build differ")
            for line in run("dpkg-deb", "-c", path).stdout.splitlines():
                if line.split()[1] != "root/root":
                    out.append(f"{name}: {line}")
            tree = unpack(path, os.path.join(work, name))
            files = check_files(tree, name, paths, out)
            out += [f"{name}: no {f}" for f in WANT.get(name, []) if f not in files]
            check_starts(tree, files, out)
            check_pages(tree, build, out)
        check_library(os.path.join(work, "libtandem-dev"), out)
        if "tandem-dbgsym" in packages:
            check_symbols(work, out)
        if shutil.which("lintian"):
            told = run("lintian", "--fail-on", "error", *packages.values())
            out += [line for line in told.stdout.splitlines() if line.startswith("E:")]
            print(f"lintian: exit {told.returncode}, {told.stdout.count('W: ')} warnings")
        doctored(os.path.join(work, "tandem"), paths, out)
    return out


def check_symbols(work, out):
    """The symbols are those of the programs."""
    for package, program in (("tandem", "usr/libexec/tandem/tandemd"),
                             ("tandem", "usr/libexec/tandem/tandem-exec"), ("tandemctl", "usr/bin/tandemctl")):
        notes = run("readelf", "-n", os.path.join(work, package, program)).stdout
        build_id = re.search(r"Build ID: (\w+)", notes).group(1)
        path = os.path.join(work, f"{package}-dbgsym/usr/lib/debug/.build-id", build_id[:2],
                            build_id[2:] + ".debug")
        if not os.path.exists(path) or ".debug_info" not in run("readelf", "-SW", path).stdout:
            out.append(f"{package}-dbgsym: no symbols of {program}")


def check_library(tree, out):
    """The example of libtandem-dev builds with what the package has, and fails in words where nobody answers."""
    config = glob.glob(os.path.join(tree, "usr/lib/*/pkgconfig"))
    env = {**os.environ, "PKG_CONFIG_PATH": config[0], "PKG_CONFIG_ALLOW_SYSTEM_CFLAGS": "1"}
    told = run("pkg-config", f"--define-variable=prefix={tree}/usr", "--cflags", "--libs", "tandem", env=env)
    program = os.path.join(tree, "ask")
    built = run("cc", "-Wall", "-Werror", os.path.join(tree, "usr/share/doc/libtandem-dev/examples/ask.c"),
                *told.stdout.split(), "-o", program)
    if told.returncode or built.returncode:
        out.append(f"libtandem-dev: {told.stderr}{built.stderr}")
        return
    asked = run(program, "127.0.0.1", "1", "/health")
    if asked.returncode != 1 or not asked.stderr.startswith("ask: "):
        out.append(f"libtandem-dev: the example answers {asked}")


def doctored(tree, paths, out):
    """Each check of check_files finds what it is for."""
    found = soft("memcpy@GLIBC", "  GNU_STACK 0x0 RWE")
    if len(found) < 4:
        out.append(f"self-test: a soft program passed: {found}")
    os.chmod(os.path.join(tree, "usr/share/doc/tandem/copyright"), 0o666)
    os.chmod(os.path.join(tree, "usr/libexec/tandem/nic"), 0o4755)
    for name in ("etc/tandem/surplus", "opt/surplus"):
        os.makedirs(os.path.dirname(os.path.join(tree, name)), exist_ok=True)
        with open(os.path.join(tree, name), "w", encoding="ascii") as f:
            f.write("x")
    with open(os.path.join(tree, "usr/libexec/tandem/tandemd"), "ab") as f:
        f.write(paths[0].encode())
    found = []
    check_files(tree, "doctored", paths, found)
    for word in ("copyright has mode", "nic has mode", "opt/surplus is in no folder",
                 "conffiles are not", f"holds the path {paths[0]}", "tandemd: FAILED"):
        if not any(word in line for line in found):
            out.append(f"self-test: nothing found for '{word}'")


def main():
    if not shutil.which("dpkg-deb"):
        sys.exit(77)
    findings = check(sys.argv[1], sys.argv[2])
    print("\n".join(findings) or "the packages are sound")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
