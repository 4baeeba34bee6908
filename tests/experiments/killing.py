"""A sweep that is killed, for tests of what is left of it."""

import signal
import subprocess
import time


def kill_midway(arguments, out):
    """Start a sweep into the folder `out` and kill -9 it as soon as it has stored some rows."""
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = out / "rows.jsonl"
    while process.poll() is None and not (rows.exists() and rows.stat().st_size > 2000):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
