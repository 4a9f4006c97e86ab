"""The systems that serve clients of RocketMQ 5 over gRPC, and the administration that their tests need, which goes over
remoting at either.

    with JavaFront() as front:
        create_topic(front, "Orders", "FIFO")
        create_group(front, "readers", orderly=True)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol, Self

from bench.proxy import JavaProxy
from orbitmq.message.unit import Unit, decode_units
from orbitmq.wire.command import Command, request
from orbitmq.wire.header import Header
from orbitmq.wire.headers import GetMaxOffsetHeader, PullMessageHeader
from orbitmq.wire.headers_admin import CreateTopicHeader, GetConsumerConnectionListHeader
from orbitmq.wire.headers_namesrv import GetRouteInfoHeader
from orbitmq.wire.requests import RequestCode
from tests.support.asking import asking
from tests.support.certificates import Pair
from tests.support.java_rocketmq import ROCKETMQ_5, JavaNameServer, JavaSystem
from tests.support.orbit_process import OrbitUp
from tests.support.process import ChildProcess, Daemon, accepts, free_port, wait_until

READ_WRITE = 6


class Front(Protocol):
    """A running system: `endpoint` is its gRPC port, `address` that of the broker's remoting."""

    endpoint: str
    namesrv_address: str
    address: str

    def check_alive(self) -> None: ...


class JavaFront:
    """A name server of 5.3.3, and its proxy in local mode, which has a broker inside."""

    def __init__(self, certificate: Pair | None = None, **broker_config: object) -> None:
        self.nameserver = JavaNameServer(ROCKETMQ_5)
        # What comes again after an unacknowledged delivery is one of its timer messages.
        self.proxy = JavaProxy(
            self.nameserver.address, certificate=certificate, timerWheelEnable="true", **broker_config
        )
        self.endpoint = self.proxy.endpoint
        self.namesrv_address = self.nameserver.address
        self.address = self.proxy.address

    def check_alive(self) -> None:
        self.nameserver.check_alive()
        self.proxy.check_alive()

    def __enter__(self) -> Self:
        self.nameserver.__enter__()
        try:
            self.proxy.__enter__()
        except BaseException:
            self.nameserver.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.proxy.__exit__(*error)
        self.nameserver.__exit__(*error)


class OrbitFront(OrbitUp):
    """`orbitmq up` that serves gRPC, too."""

    def __init__(self, certificate: Pair | None = None, **config: object) -> None:
        if certificate is not None:
            config |= {"tls.server.certPath": certificate.certificate, "tls.server.keyPath": certificate.key}
        super().__init__(**config)  # type: ignore[arg-type]
        port = free_port()
        self.endpoint = f"127.0.0.1:{port}"
        self._grpc_port = port
        self.more_arguments = ("--grpc-port", port)

    def _is_ready(self, process: ChildProcess) -> bool:
        return super()._is_ready(process) and accepts(self._grpc_port)


@dataclass(frozen=True)
class Place:
    """One broker of a running system that has several."""

    endpoint: str
    namesrv_address: str
    address: str

    def check_alive(self) -> None:
        """Whoever started it does."""


class Fronted:
    """A system with a proxy of its own before it."""

    def __init__(self, behind: JavaSystem | OrbitUp, proxy: Callable[[str], Daemon]) -> None:
        self.behind = behind
        self.proxy = proxy(behind.namesrv_address)
        self.endpoint = self.proxy.address
        self.namesrv_address = behind.namesrv_address
        self.address = behind.address

    def check_alive(self) -> None:
        self.behind.check_alive()
        self.proxy.check_alive()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.behind)
            stack.enter_context(self.proxy)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


class _TypedTopicHeader(CreateTopicHeader):
    attributes: str = ""


def create_topic(
    front: Front, name: str, kind: str = "NORMAL", *, read: int = 1, write: int = 1, perm: int = READ_WRITE
) -> None:
    """A topic whose messages are of `kind`, MIXED for any. Returns once the name server has it."""
    header = _TypedTopicHeader(
        name, "TBW102", read, write, perm, "SINGLE_TAG", False, attributes=f"+message.type={kind}"
    )
    _ask(front.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    wait_until(lambda: _has_route(front, name), 20, f"a route of {name}")


def _has_route(front: Front, topic: str) -> bool:
    """Which leads to the broker of the front."""
    asked = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader(topic))
    answer = _call(front.namesrv_address, asked)
    return answer.code == 0 and f'"{front.address}"'.encode() in answer.body


def create_group(front: Front, name: str, *, orderly: object = False, retry_max: object = 16, **more: object) -> None:
    """A consumer group; a message that failed is delivered again up to `retry_max` times."""
    config = {
        "groupName": name,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeBroadcastEnable": True,
        "consumeMessageOrderly": orderly,
        "retryQueueNums": 1,
        "retryMaxTimes": retry_max,
        "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1,
        "notifyConsumerIdsChangedEnable": True,
        **more,
    }
    _ask(front.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json.dumps(config).encode())


def stored(front: Front, topic: str, queues: int = 1) -> int:
    """How many messages the topic has ever had; 0 when there is no topic."""
    return sum(ends(front, topic, queues))


def ends(front: Front, topic: str, queues: int) -> list[int]:
    """The same for each queue."""
    found = [
        _call(front.address, request(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader(topic, queue)))
        for queue in range(queues)
    ]
    return [int((end.ext or {}).get("offset") or 0) if end.code == 0 else 0 for end in found]


def units(front: Front, topic: str, queue: int = 0) -> list[Unit]:
    """The first messages of a queue as they are stored, whoever has consumed them."""
    header = PullMessageHeader("units-readers", topic, queue, 0, 32, 0b0100, 0, 0, 0, "*")
    answer = _call(front.address, request(RequestCode.PULL_MESSAGE, header))
    return decode_units(answer.body) if answer.code == 0 else []


def member_ids(front: Front, group: str) -> list[str]:
    """The ids of the consumers that the broker knows in the group."""
    asked = request(RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListHeader(group))
    answer = _call(front.address, asked)
    return [one["clientId"] for one in json.loads(answer.body)["connectionSet"]] if answer.code == 0 else []


def _ask(address: str, code: int, header: Header | None = None, body: bytes = b"") -> None:
    answer = _call(address, request(code, header, body))
    assert answer.code == 0, answer.remark


def _call(address: str, command: Command) -> Command:
    return asking(address, lambda asker: asker.remoting.call(address, command, 30_000))
