"""What a signed request of an administrator looks like: the fields of its own header, and a body only where it has one.

A signature of 4.x covers the values of the fields joined without borders, and the body, but neither the names of the
fields nor the code. Whoever hears a signed request can therefore send its values under another code, and hide those
that do not fit in fields that nobody reads. Where much can be broken, nothing but what the request knows is taken;
whether its own fields are there and can be read is for its handler. Must not know accounts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orbitmq.wire.codes import RequestCode as R
from orbitmq.wire.header import Header
from orbitmq.wire.headers_access import DeleteAccountHeader, UpdateAccountHeader, UpdateGlobalWhiteAddressesHeader
from orbitmq.wire.headers_admin import (
    CreateTopicHeader,
    DeleteSubscriptionGroupHeader,
    DeleteTopicHeader,
    GetBrokerConsumeStatsHeader,
    GetProducerConnectionListHeader,
    ViewBrokerStatsDataHeader,
)
from orbitmq.wire.headers_groups import CloneGroupOffsetHeader, InvokeBrokerToResetOffsetHeader
from orbitmq.wire.headers_transaction import PendingTransactionsHeader, ResumeCheckHalfMessageHeader
from orbitmq.wire.promotion import PromoteSlaveHeader
from orbitmq.wire.signature import ACCESS_KEY, SIGNATURE
from orbitmq.wire.standing import BrokerStandingHeader

_TRUTHS: Final = frozenset({"true", "false"})
_OF_EVERY_REQUEST: Final[Mapping[str, frozenset[str]]] = {"ReqT": frozenset({"0"}), "oway": _TRUTHS, "lo": _TRUTHS}
"""Fields that clients may add to any request, with values too few to hide something in."""
_SHOWN_MAX: Final = 64  # characters of a field's name in an answer


@dataclass(frozen=True)
class Shape:
    """`more` are fields that tools of RocketMQ 5 send and orbitmq does not read."""

    header: type[Header] = Header
    has_body: bool = False
    more: frozenset[str] = frozenset()

    def known(self) -> frozenset[str]:
        """The fields it may have."""
        return self.more | {ACCESS_KEY, SIGNATURE, *self.header.__struct_encode_fields__}


_EMPTY, _BODY = Shape(), Shape(has_body=True)

SHAPES: Final[Mapping[int, Shape]] = {
    R.UPDATE_AND_CREATE_TOPIC: Shape(CreateTopicHeader, more=frozenset({"attributes", "force"})),
    R.UPDATE_AND_CREATE_TOPIC_LIST: _BODY,
    R.DELETE_TOPIC_IN_BROKER: Shape(DeleteTopicHeader),
    R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _BODY,
    R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _BODY,
    R.DELETE_SUBSCRIPTIONGROUP: Shape(DeleteSubscriptionGroupHeader),
    R.INVOKE_BROKER_TO_RESET_OFFSET: Shape(InvokeBrokerToResetOffsetHeader),
    R.CLONE_GROUP_OFFSET: Shape(CloneGroupOffsetHeader),
    R.GET_PRODUCER_CONNECTION_LIST: Shape(GetProducerConnectionListHeader),
    R.RESUME_CHECK_HALF_MESSAGE: Shape(ResumeCheckHalfMessageHeader, more=frozenset({"topic"})),
    R.GET_PENDING_TRANSACTIONS: Shape(PendingTransactionsHeader),
    R.PROMOTE_SLAVE: Shape(PromoteSlaveHeader),
    R.BROKER_STANDING: Shape(BrokerStandingHeader),
    R.GET_ALL_TOPIC_CONFIG: _EMPTY,
    R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _EMPTY,
    R.GET_ALL_CONSUMER_OFFSET: _EMPTY,
    R.GET_ALL_DELAY_OFFSET: _EMPTY,
    R.UPDATE_BROKER_CONFIG: _BODY,
    R.GET_BROKER_CONFIG: _EMPTY,
    R.GET_BROKER_RUNTIME_INFO: _EMPTY,
    R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _EMPTY,
    R.CLEAN_EXPIRED_CONSUMEQUEUE: _EMPTY,
    R.CLEAN_UNUSED_TOPIC: _EMPTY,
    R.DELETE_EXPIRED_COMMITLOG: _EMPTY,
    R.VIEW_BROKER_STATS_DATA: Shape(ViewBrokerStatsDataHeader),
    R.GET_BROKER_CONSUME_STATS: Shape(GetBrokerConsumeStatsHeader),
    R.GET_ALL_PRODUCER_INFO: _EMPTY,
    R.UPDATE_AND_CREATE_ACL_CONFIG: Shape(UpdateAccountHeader),
    R.DELETE_ACL_CONFIG: Shape(DeleteAccountHeader),
    R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: Shape(UpdateGlobalWhiteAddressesHeader),
    R.GET_BROKER_CLUSTER_ACL_INFO: _EMPTY,
    R.GET_BROKER_CLUSTER_ACL_CONFIG: _EMPTY,
}


def misfit(code: int, signed: Mapping[str, str], body: bytes) -> str | None:
    """Why signed fields and body are not those of such a request; None when they are, or when it may have others."""
    shape = SHAPES.get(code)
    if shape is None:
        return None
    known = shape.known()
    strange = sorted(
        name for name, value in signed.items() if name not in known and value not in _OF_EVERY_REQUEST.get(name, ())
    )
    if strange:
        return f"field {strange[0][:_SHOWN_MAX]} is no field of a request with code={code}"
    if body and not shape.has_body:
        return f"a request with code={code} has no body"
    return None
