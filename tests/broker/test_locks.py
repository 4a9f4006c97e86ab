"""A queue has one owner at a time, as long as it renews."""

from __future__ import annotations

import logging

import pytest

from orbitmq.broker.locks import NAMES_SIZE_MAX, LockTable
from orbitmq.message.model import MessageQueue

QUEUES = [MessageQueue("Orders", "broker-a", number) for number in range(3)]


def test_the_first_to_ask_owns_and_others_get_what_is_free() -> None:
    locks = LockTable()
    assert locks.lock("g", "anna", QUEUES[:2], 0) == QUEUES[:2]
    assert locks.lock("g", "bert", QUEUES, 1) == QUEUES[2:]
    assert locks.lock("g", "anna", QUEUES, 2) == QUEUES[:2]


def test_groups_do_not_compete() -> None:
    locks = LockTable()
    assert locks.lock("g", "anna", QUEUES, 0) == locks.lock("h", "bert", QUEUES, 0) == QUEUES


def test_how_long_an_owner_may_be_silent_can_be_chosen() -> None:
    locks = LockTable(expiry_ms=10)
    locks.lock("g", "anna", QUEUES, 0)
    assert locks.lock("g", "bert", QUEUES, 10) == []
    assert locks.lock("g", "bert", QUEUES, 11) == QUEUES


def test_a_lock_ends_a_minute_after_its_last_renewal() -> None:
    locks = LockTable()
    locks.lock("g", "anna", QUEUES, 0)
    locks.lock("g", "anna", QUEUES[:1], 40_000)
    assert locks.lock("g", "bert", QUEUES, 60_000) == []
    assert locks.lock("g", "bert", QUEUES, 60_001) == QUEUES[1:]
    assert locks.lock("g", "bert", QUEUES, 100_000) == QUEUES[1:]
    assert locks.lock("g", "bert", QUEUES, 100_001) == QUEUES


def test_only_the_owner_frees_a_queue() -> None:
    locks = LockTable()
    locks.lock("g", "anna", QUEUES, 0)
    locks.unlock("g", "bert", QUEUES)
    locks.unlock("other", "anna", QUEUES)
    assert locks.lock("g", "bert", QUEUES, 1) == []
    locks.unlock("g", "anna", QUEUES[1:])
    assert locks.lock("g", "bert", QUEUES, 2) == QUEUES[1:]


def test_what_nobody_renews_is_forgotten() -> None:
    locks = LockTable()
    locks.lock("g", "anna", QUEUES, 0)
    locks.lock("h", "bert", QUEUES[:1], 30_000)
    locks.lock("empty", "carl", [], 30_000)
    locks.sweep(60_001)
    assert locks._table == {"h": {QUEUES[0]: ("bert", 30_000)}}
    locks.sweep(90_001)
    assert locks._table == {}


def test_there_is_a_limit_of_all_groups(caplog: pytest.LogCaptureFixture) -> None:
    locks = LockTable(limit=3)
    assert locks.lock("g", "anna", QUEUES[:2], 0) == QUEUES[:2]
    with caplog.at_level(logging.WARNING):
        assert locks.lock("h", "bert", QUEUES[:2], 0) == QUEUES[:1]
    assert "group=h" in caplog.text
    assert "limit=3" in caplog.text
    assert locks.lock("i", "carl", QUEUES[:1], 0) == []
    assert locks.lock("g", "anna", QUEUES[:2], 50_000) == QUEUES[:2], "what is held can be renewed"
    locks.unlock("g", "anna", QUEUES[:1])
    assert locks.lock("i", "carl", QUEUES[:1], 50_000) == QUEUES[:1]
    locks.sweep(60_001)
    assert locks.lock("j", "dora", QUEUES[:2], 60_001) == QUEUES[:1]


def test_queues_of_endless_names_are_not_locked() -> None:
    """A lock keeps the names while it lives, and a client may ask for any."""
    locks = LockTable()
    assert locks.lock("g", "anna", [MessageQueue("t" * NAMES_SIZE_MAX, "broker-a", 0), QUEUES[0]], 0) == QUEUES[:1]
    assert locks.lock("g", "a" * NAMES_SIZE_MAX, QUEUES[1:], 0) == []
