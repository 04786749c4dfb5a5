#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What deploy/test says at its end about tests that failed.  usage: failed.py ROOT CTEST"""
import os
import subprocess
import sys
import tempfile

TESTS = """
add_test(good true)
add_test(early sh -c "echo 'line 7: assertion'; seq 99; echo '<last>'; exit 1")
add_test(late sh -c "echo begun; sleep 60")
set_tests_properties(late PROPERTIES TIMEOUT 1)
add_test(gone /nonexistent/program)
add_test(skipped sh -c "exit 77")
set_tests_properties(skipped PROPERTIES SKIP_RETURN_CODE 77)
"""


def said(root, ctest, which):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "CTestTestfile.cmake"), "w", encoding="utf-8") as f:
            f.write(TESTS)
        subprocess.run([ctest, "--test-dir", folder, "-R", which, "--output-junit", "report.xml"],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        done = subprocess.run([os.path.join(root, "tests/failed.py"), os.path.join(folder, "report.xml")],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr


def main():
    root, ctest = sys.argv[1:]
    assert said(root, ctest, "good|skipped") == (0, "", "")
    code, text, _ = said(root, ctest, ".")
    lines = text.splitlines()
    assert code == 1, text
    assert [x.split()[1] for x in lines if x.startswith("FAILED")] == ["early", "late", "gone"], text
    early = lines[:next(i for i, x in enumerate(lines) if x.startswith("FAILED late"))]
    assert early[1:4] == ["    line 7: assertion", "    ...", "    86"] and early[-1] == "    <last>", text
    assert "    begun" in lines and "    Unable to find executable: /nonexistent/program" in lines, text
    return 0


if __name__ == "__main__":
    sys.exit(main())
