"""A broker the network did not reach is asked whether it is there again."""

from __future__ import annotations

import pytest

from orbitmq.client import Message, Producer
from orbitmq.client.core.latency import PROBE_LOOK_S
from orbitmq.errors import ClientError
from orbitmq.net.connection import Connection
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, fake_system, refuse, silence
from tests.support.loops import TurnedLoop, run, turned_loop, until


@pytest.mark.parametrize("profile", ["v4", "v5"])
def test_only_the_later_profile_probes(profile: str) -> None:
    async def scenario() -> None:
        async with (
            fake_system() as system,
            Producer("g", system.address, latency_fault=True, latency_profile=profile, retry_times=0) as producer,
        ):

            def cut(connection: Connection, _command: Command) -> None:
                connection.abort()

            await producer.send(Message("T", b"x"))
            system.answers[RequestCode.SEND_MESSAGE_V2] = cut
            system.answers[RequestCode.GET_MAX_OFFSET] = silence()
            with pytest.raises(ClientError):
                await producer.send(Message("T", b"x"))
            assert producer.faults[BROKER].is_reachable == (profile == "v4")
            await turned_loop().turn(PROBE_LOOK_S)
            if profile == "v4":
                assert system.count(RequestCode.GET_MAX_OFFSET) == 0
                return
            await until(lambda: system.count(RequestCode.GET_MAX_OFFSET) == 1)
            await turned_loop().turn(PROBE_LOOK_S)
            assert not producer.faults[BROKER].is_reachable, "nobody answered"
            system.answers[RequestCode.GET_MAX_OFFSET] = refuse(ResponseCode.SYSTEM_ERROR)
            await turned_loop().turn(PROBE_LOOK_S)
            await until(lambda: producer.faults[BROKER].is_reachable)

    run(scenario(), TurnedLoop)
