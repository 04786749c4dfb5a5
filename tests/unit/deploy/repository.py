#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A signed repository: apt takes what its key has signed, and nothing else.  usage: repository.py ROOT

Keys, packages and apt's folders are the test's own.  Exit 77 without gpg, apt-ftparchive or apt-get."""
import os
import shutil
import subprocess
import sys
import tempfile


def run(*args, check=True, **how):
    r = subprocess.run(args, capture_output=True, text=True, check=False, **how)
    assert not check or r.returncode == 0, (args, r.stdout, r.stderr)
    return r


class Apt:
    def __init__(self, folder, repository, key):
        self.root = os.path.join(folder, "apt")
        for name in ("etc/apt/sources.list.d", "etc/apt/preferences.d", "etc/apt/apt.conf.d", "var/lib/dpkg",
                     "var/lib/apt/lists/partial", "var/cache/apt/archives/partial"):
            os.makedirs(os.path.join(self.root, name), exist_ok=True)
        with open(os.path.join(self.root, "var/lib/dpkg/status"), "w", encoding="ascii"):
            pass
        with open(os.path.join(self.root, "etc/apt/sources.list.d/tandem.sources"), "w", encoding="utf-8") as f:
            f.write(f"Types: deb\nURIs: file:{repository}\nSuites: ./\nSigned-By: {key}\n")

    def __call__(self, *args, check=False):
        return run("apt-get", "-o", f"Dir={self.root}", "-o", f"Dir::State::status={self.root}/var/lib/dpkg/status",
                   "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none",
                   "-o", "APT::Architecture=amd64", "-o", "APT::Architectures=amd64", *args, check=check)


def package(folder, version):
    tree = os.path.join(folder, "t-" + version)
    os.makedirs(tree + "/DEBIAN")
    with open(tree + "/DEBIAN/control", "w", encoding="ascii") as f:
        f.write(f"Package: tandem\nVersion: {version}\nArchitecture: amd64\nMaintainer: a <a@example.org>\n"
                "Description: a stand-in\n")
    path = os.path.join(folder, f"tandem_{version}_amd64.deb")
    run("dpkg-deb", "--root-owner-group", "-b", tree, path)
    return path


def main():
    if not all(shutil.which(p) for p in ("gpg", "apt-ftparchive", "apt-get", "dpkg-scanpackages")):
        sys.exit(77)
    script = os.path.join(sys.argv[1], "deploy/debian/repository")
    with tempfile.TemporaryDirectory(prefix="tr-") as folder:
        os.environ["GNUPGHOME"] = folder + "/gpg"
        os.mkdir(folder + "/gpg", 0o700)
        for who in ("packages@example.org", "other@example.org"):
            run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", who, "rsa2048", "sign", "0")
        repository = folder + "/repository"
        run(script, repository, "packages@example.org", package(folder, "1.0"))
        run(script, repository, "packages@example.org", package(folder, "1.1"))
        apt = Apt(folder, repository, repository + "/tandem.asc")
        told = apt("update")
        assert told.returncode == 0 and "W:" not in told.stderr, told
        for version in ("1.0", "1.1"):  # the former stays, to go back to
            told = apt("install", "--print-uris", "-y", "tandem=" + version)
            assert told.returncode == 0 and f"tandem_{version}_amd64.deb" in told.stdout + told.stderr, told

        with open(repository + "/Packages", "a", encoding="ascii") as f:
            f.write("\n")
        shutil.rmtree(apt.root + "/var/lib/apt/lists")
        os.remove(repository + "/Packages.gz")
        told = apt("update")
        assert told.returncode != 0, "an altered index was taken"
        run(script, repository, "other@example.org", package(folder, "6.6"))
        told = run("gpg", "--batch", "--armor", "--export", "packages@example.org")
        with open(repository + "/tandem.asc", "w", encoding="ascii") as f:
            f.write(told.stdout)
        told = apt("update")
        assert told.returncode != 0 and "NO_PUBKEY" in told.stdout + told.stderr, told
        print("apt takes what the key has signed, refuses an altered index and another's signature")
        run("gpgconf", "--kill", "all", check=False)


if __name__ == "__main__":
    main()
