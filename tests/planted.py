# SPDX-License-Identifier: Apache-2.0
"""A bug put into a copy of a source, for tests of tests."""
import contextlib
import sys


@contextlib.contextmanager
def planted(path, name, old, new):
    """The file has `new` for its one `old`, and as it was behind it; ends the program where that text
    does not stand there once."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    if text.count(old) != 1:
        sys.exit(f"mutate: \"{name}\": its text occurs {text.count(old)} times in {path}")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.replace(old, new))
    try:
        yield
    finally:
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
