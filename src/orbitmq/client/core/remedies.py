"""What somebody can do about a send that failed, in a few words. Pure; knows errors, not what was sent."""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.errors import BrokerError, ConnectError, OrbitMQError, RemotingTimeout
from orbitmq.wire.codes import ResponseCode

_BY_CODE: Mapping[int, str] = {
    ResponseCode.SYSTEM_BUSY: "the broker has more to do than it can: send less at a time, or again after a while",
    ResponseCode.FLOW_CONTROL: "the broker limits this client: send less at a time, or again after a while",
    ResponseCode.MESSAGE_ILLEGAL: "change the message: another broker would refuse it, too",
    ResponseCode.NO_PERMISSION: "have the topic or this account permitted to write, or send to another topic",
    ResponseCode.TOPIC_NOT_EXIST: "create the topic, or let brokers create it (autoCreateTopicEnable)",
    ResponseCode.SERVICE_NOT_AVAILABLE: "look at the broker: it is shutting down, a slave, or its disk is full",
    ResponseCode.SYSTEM_ERROR: "look at the broker's log",
}
_CONNECT = "check that the broker lives and that the address it registers can be reached from here (brokerIP1)"
_TIMEOUT = "give more time (send_timeout_ms), or look at the load of the broker and the network"


def remedy(error: OrbitMQError | None) -> str:
    """What may help; empty when nobody knows."""
    if isinstance(error, BrokerError):
        return _BY_CODE.get(error.code, "")
    if isinstance(error, ConnectError):
        return _CONNECT
    return _TIMEOUT if isinstance(error, RemotingTimeout) else ""
