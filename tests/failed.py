#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tests that failed, from CTest's JUnit files, each with what says why.  usage: failed.py FILE...

A reader who sees only the end of a long run sees the cause: for each failed test the lines that name an
error, then the last ones.  Exit 1 if any failed."""
import re
import sys
import xml.etree.ElementTree

LAST, NAMED, WIDTH = 15, 5, 400
TELLING = re.compile(r"error|assert|fail|sanitizer|traceback|timeout", re.I)


def why(text):
    """The end of the text, and before it the first lines further up that name an error."""
    lines = [re.sub(r"\[NON-XML-CHAR-\w+\]", "", line)[:WIDTH] for line in text.rstrip().splitlines()]
    named = [line for line in lines[:-LAST] if TELLING.search(line)][:NAMED]
    return named + (["..."] if named else []) + lines[-LAST:]


def failed(path):
    """(test, seconds, output) of each that did not pass; one that was skipped by its own word did."""
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        skipped = case.find("skipped")
        by_itself = skipped is not None and "SKIP_" in skipped.get("message", "")
        if case.get("status") not in ("run", "disabled") and not by_itself:
            yield case.get("name"), float(case.get("time")), case.findtext("system-out") or ""


def main():
    cnt = 0
    for path in sys.argv[1:]:
        for name, seconds, text in failed(path):
            print(f"FAILED {name} after {seconds:.1f} s ({path})")
            print("".join(f"    {line}\n" for line in why(text)), end="")
            cnt += 1
    return 1 if cnt else 0


if __name__ == "__main__":
    sys.exit(main())
