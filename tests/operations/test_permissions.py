"""Write permission is taken and given as Java's tools do it."""

from __future__ import annotations

import asyncio

from orbitmq.operations.permissions import add_write_permission, wipe_write_permission
from orbitmq.wire.requests import RequestCode
from tests.support.recorded import ADDRESS, exchange


def test_write_permission_is_taken_and_given() -> None:
    found = exchange(RequestCode.WIPE_WRITE_PERM_OF_BROKER)
    assert asyncio.run(wipe_write_permission(found.remoting, ADDRESS, "broker-a")) > 0
    found.assert_asked_as_java()
    found = exchange(RequestCode.ADD_WRITE_PERM_OF_BROKER)
    assert asyncio.run(add_write_permission(found.remoting, ADDRESS, "broker-a")) > 0
    found.assert_asked_as_java()
