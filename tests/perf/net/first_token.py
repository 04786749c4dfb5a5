#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""perf_first_token against an appliance of its own.

usage: unshare --net first_token.py BUILD_DIR [REQUESTS]     (root)
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "e2e"))
from appliance import PORT, Appliance  # noqa: E402

BUILD = sys.argv[1]
with Appliance(os.path.join(BUILD, "bin")):
    subprocess.run([os.path.join(BUILD, "tests/perf/net/perf_first_token"), "10.88.0.2", "4433", str(PORT),
                    *sys.argv[2:3]], check=True)
