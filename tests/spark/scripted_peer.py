"""A peer on a loopback port that answers as a function says: name server and broker of tests without a cluster."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Self

from orbitmq.message.model import MessageQueue
from orbitmq.wire.bodies import BrokerData, ClusterInfo, QueueData, TopicList, TopicRouteData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder, encode_frame
from orbitmq.wire.headers import (
    GetMaxOffsetHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetHeader,
    GetMinOffsetResponseHeader,
    PullMessageHeader,
    PullMessageResponseHeader,
    SearchOffsetHeader,
    SearchOffsetResponseHeader,
)
from orbitmq.wire.headers_namesrv import GetKVConfigHeader, GetKVConfigResponseHeader, GetRouteInfoHeader
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode
from tests.spark.queue_model import QueueModel

Script = Callable[[Command], Iterable[Command]]
NO_PAIRS: Mapping[str, str] = MappingProxyType({})
NO_PERMS: Mapping[tuple[str, str], int] = MappingProxyType({})


class Hangup(Exception):
    """Raised by a script: the connection closes without an answer."""


class ScriptedPeer:
    """Every request goes to `script`; what it returns is sent in that order."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Command] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        decoder = FrameDecoder(typed=False)
        with connection:
            try:
                while data := connection.recv(65536):
                    for request in decoder.feed(data):
                        self.requests.append(request)
                        connection.sendall(b"".join(map(encode_frame, self.script(request))))
            except (OSError, Hangup):
                return

    def close(self) -> None:
        """Refuse new connections; the others end with their clients."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def broker_script(queues: Mapping[int, QueueModel]) -> Script:
    """A broker with model queues: offsets, searches by time as RocketMQ 4.9 has them, and
    pulls, filtered by one tag when the subscription names one."""

    def script(request: Command) -> list[Command]:
        if request.code == RequestCode.GET_MIN_OFFSET:
            low = queues[request.header(GetMinOffsetHeader).queue_id].low
            return [request.response(ResponseCode.SUCCESS, None, GetMinOffsetResponseHeader(low))]
        if request.code == RequestCode.GET_MAX_OFFSET:
            high = queues[request.header(GetMaxOffsetHeader).queue_id].high
            return [request.response(ResponseCode.SUCCESS, None, GetMaxOffsetResponseHeader(high))]
        if request.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
            search = request.header(SearchOffsetHeader)
            found = SearchOffsetResponseHeader(queues[search.queue_id].nearest(search.timestamp))
            return [request.response(ResponseCode.SUCCESS, None, found)]
        pull = request.header(PullMessageHeader)
        wanted = None if pull.subscription == "*" else pull.subscription
        answer = queues[pull.queue_id].pull(pull.queue_offset, pull.max_msg_nums, wanted)
        header = PullMessageResponseHeader(0, answer.next_offset, answer.min_offset, answer.max_offset)
        return [request.response(answer.code, answer.remark, header, answer.body)]

    return script


def name_server_script(
    routes: Mapping[str, Mapping[str, tuple[int, str]]],
    ordered: Mapping[str, str] = NO_PAIRS,
    perms: Mapping[tuple[str, str], int] = NO_PERMS,
) -> Script:
    """A name server: topic -> broker name -> (read queues, address). Brokers of no topic are not registered. `ordered`
    are the order configurations of topics, `perms` the permissions of (topic, broker) that are not RW."""

    def script(request: Command) -> list[Command]:
        if request.code == RequestCode.GET_KV_CONFIG:
            value = ordered.get(request.header(GetKVConfigHeader).key)
            code = ResponseCode.QUERY_NOT_FOUND if value is None else ResponseCode.SUCCESS
            return [request.response(code, None, GetKVConfigResponseHeader(value))]
        if request.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            return [request.response(ResponseCode.SUCCESS, None, None, encode(TopicList(topic_list=list(routes))))]
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            brokers = {
                name: BrokerData(name, "c", {0: address})
                for brokers in routes.values()
                for name, (_, address) in brokers.items()
            }
            return [
                request.response(ResponseCode.SUCCESS, None, None, encode(ClusterInfo(brokers, {"c": list(brokers)})))
            ]
        topic = request.header(GetRouteInfoHeader).topic
        if topic not in routes:
            return [request.response(ResponseCode.TOPIC_NOT_EXIST, f"No topic route info for the topic: {topic}")]
        brokers = routes[topic]
        route = TopicRouteData(
            broker_datas=[BrokerData(name, "c", {0: address}) for name, (_, address) in brokers.items()],
            queue_datas=[
                QueueData(name, perms.get((topic, name), 6), queues, queues) for name, (queues, _) in brokers.items()
            ],
        )
        return [request.response(ResponseCode.SUCCESS, None, None, encode(route))]

    return script


def queue(queue_id: int, topic: str = "orders", broker_name: str = "broker-a") -> MessageQueue:
    return MessageQueue(topic, broker_name, queue_id)
