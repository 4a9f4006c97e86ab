"""Frames of all threads can be listed while other threads start, end and leave garbage."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import pytest

from orbitmq.runtime.frames import current_frames

TIMEOUT_S = 60.0  # the script ends by itself after about a second

# Collections are frequent and a weakref callback lets other threads run: `sys._current_frames` hangs within a second.
SCRIPT = """
import gc, sys, threading, weakref
from orbitmq.runtime.frames import current_frames

class Node: pass

def describe():
    while not done.is_set():
        node = Node()
        node.itself = node
        callbacks.append(weakref.ref(node, lambda _: done.wait(0.0001)))
        if len(callbacks) > 100:
            callbacks.clear()
        current_frames()
        listed.release()

def start_threads():
    while not done.is_set():
        threading.Thread(target=int).start()

gc.set_threshold(11)
sys.setswitchinterval(1e-5)
callbacks, done, listed = [], threading.Event(), threading.Semaphore(0)
for run in (describe, describe, start_threads):
    threading.Thread(target=run, daemon=True).start()
for _ in range(10):
    threading.Thread(target=done.wait, daemon=True).start()
for _ in range(100_000):
    listed.acquire()
done.set()
"""


def test_listing_frames_while_threads_start_does_not_hang() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=TIMEOUT_S)


def test_the_frame_of_the_caller_is_listed() -> None:
    frame = current_frames()[threading.get_ident()]
    assert frame.f_code.co_name in ("current_frames", "test_the_frame_of_the_caller_is_listed")


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_left_as_it_was(enabled: bool) -> None:
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        current_frames()
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
