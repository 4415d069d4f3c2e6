"""What a measured worker says of itself, in files of the directory BENCH_METER: jobs that ran, and pick-ups.

Needs nothing but Python: it runs in the environments of other queues.
"""

import os
import threading
import time
from pathlib import Path

PLACE = Path(os.environ["BENCH_METER"])
EVERY = 0.01

_lock = threading.Lock()
_count = 0
_first = 0.0
_pid = 0


def ran():
    """A job ran here. Costs a lock; a thread of its own writes the count down, a hundred times a second."""
    global _count, _first, _pid
    with _lock:
        if _pid != os.getpid():  # the first in this process
            _pid, _count, _first = os.getpid(), 0, time.monotonic()
            threading.Thread(target=_report, args=(_pid,), daemon=True).start()
        _count += 1


def _report(pid):
    told = 0
    with open(PLACE / f"ran-{pid}", "a") as file:
        while True:
            now, count = time.monotonic(), _count
            if count != told:
                file.write(f"{_first} {count} {now}\n")
                file.flush()
                told = count
            time.sleep(EVERY)


def picked_up(sent):
    """A job that was sent at a time by the monotonic clock has started."""
    now = time.monotonic()
    with open(PLACE / "pickups", "a") as file:
        file.write(f"{sent} {now}\n")


def main(*, setup, bulk, send, work):
    """``setup``, ``bulk COUNT``, ``send COUNT PAUSE`` (one by one) or ``work SETTING``; the functions do it."""
    import sys

    match sys.argv[1:]:
        case ["setup"]:
            setup()
        case ["bulk", count]:
            bulk(int(count))
        case ["send", count, pause]:
            send(pauses(int(count), float(pause)))
        case ["work", setting]:
            work(setting)


def pauses(count, pause):
    """The times at which to send, one after the other."""
    for _ in range(count):
        yield time.monotonic()
        time.sleep(pause)
