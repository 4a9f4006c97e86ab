"""The thread that repeats a step."""

from __future__ import annotations

import threading

from orbitmq.store.worker import Worker

FOREVER_MS = 1 << 30


def test_a_woken_worker_runs_its_step_and_a_stopped_one_does_not() -> None:
    ran = threading.Semaphore(0)
    worker = Worker("w", lambda: ran.release(), FOREVER_MS, lambda _: None)
    worker.start()
    for _ in range(3):
        worker.wake()
        assert ran.acquire(timeout=60)
    worker.stop()
    worker.wake()
    assert not ran.acquire(blocking=False)


def test_a_step_says_when_the_next_one_comes() -> None:
    """It comes by itself then, however long the interval is."""
    ran = threading.Semaphore(0)

    def step() -> int:
        ran.release()
        return 0

    worker = Worker("w", step, FOREVER_MS, lambda _: None)
    worker.start()
    worker.wake()
    for _ in range(3):
        assert ran.acquire(timeout=60)
    worker.stop()


def test_a_stop_waits_for_the_step_under_way() -> None:
    begun, goes_on, ended = threading.Event(), threading.Event(), threading.Event()

    def step() -> None:
        begun.set()
        goes_on.wait(60)
        ended.set()

    worker = Worker("w", step, FOREVER_MS, lambda _: None)
    worker.start()
    worker.wake()
    assert begun.wait(60)
    threading.Timer(0.01, goes_on.set).start()
    worker.stop()
    assert ended.is_set()


def test_an_error_ends_the_worker_and_is_told() -> None:
    told: list[Exception] = []

    def step() -> None:
        raise OSError("the disk failed")

    worker = Worker("w", step, FOREVER_MS, told.append)
    worker.start()
    worker.wake()
    worker._thread.join(60)
    worker.stop()
    assert [str(error) for error in told] == ["the disk failed"]
