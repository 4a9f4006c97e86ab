"""What keeps clients away from a topic or a group: permissions of both, asked by hand of both systems."""

from __future__ import annotations

import pytest

from orbitmq.filter.tags import tag_subscription
from orbitmq.message.config import SubscriptionGroup
from orbitmq.message.flags import PERM_READ, PERM_WRITE, PULL_SUBSCRIPTION
from orbitmq.wire.bodies import ConsumerData, ConsumeType, HeartbeatData, MessageModel, TopicRouteData
from orbitmq.wire.headers_admin import CreateTopicHeader
from orbitmq.wire.headers_namesrv import GetRouteInfoHeader
from orbitmq.wire.objects import decode, encode
from orbitmq.wire.requests import RequestCode
from tests.interop.conftest import System
from tests.support.asking import Asker, asking
from tests.support.live import pull_header, send_header


async def _create(asker: Asker, topic: str, perm: int) -> None:
    header = CreateTopicHeader(topic, "TBW102", 1, 1, perm, "SINGLE_TAG", False)
    assert (await asker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)).code == 0


async def _pull(asker: Asker, topic: str, group: str = "readers", **fields: object) -> int:
    return (await asker.ask(RequestCode.PULL_MESSAGE, pull_header(topic, consumer_group=group, **fields))).code


@pytest.mark.parametrize(("perm", "readable"), [(PERM_READ, True), (PERM_WRITE, False), (PERM_READ | PERM_WRITE, True)])
def test_the_permission_of_a_topic_is_registered_and_kept_for_readers(
    system: System, label: str, perm: int, readable: bool
) -> None:
    """For writers it is the route that keeps them away: RocketMQ takes what is sent all the same."""

    async def at_broker(asker: Asker) -> None:
        await _create(asker, label, perm)
        assert (await asker.ask(RequestCode.SEND_MESSAGE_V2, send_header(label), b"anyway")).code == 0
        assert await _pull(asker, label) in ((0, 19) if readable else (16,))

    async def at_name_server(asker: Asker) -> None:
        answer = await asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader(label))
        (queue,) = decode(TopicRouteData, answer.body).queue_datas
        assert queue.perm == perm

    asking(system.address, at_broker)
    asking(system.namesrv_address, at_name_server)


def test_a_group_that_may_not_consume_is_refused(system: System, label: str) -> None:
    async def scenario(asker: Asker) -> None:
        await _create(asker, label, PERM_READ | PERM_WRITE)
        for enabled, code in ((False, 16), (True, 19)):
            group = encode(SubscriptionGroup(label, consume_enabled=enabled))
            assert (await asker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group)).code == 0
            assert await _pull(asker, label, label) == code

    asking(system.address, scenario)


def test_a_group_that_may_not_broadcast_is_refused(system: System, label: str) -> None:
    async def scenario(asker: Asker) -> None:
        await _create(asker, label, PERM_READ | PERM_WRITE)
        group = encode(SubscriptionGroup(label, consume_broadcast_enabled=False))
        assert (await asker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group)).code == 0
        for model, code in ((MessageModel.BROADCASTING, 16), (MessageModel.CLUSTERING, 19)):
            member = ConsumerData(
                label,
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=model,
                subscription_data_set=[tag_subscription(label, "*")],
            )
            beat = encode(HeartbeatData("tester@2", [member]))
            assert (await asker.ask(RequestCode.HEART_BEAT, body=beat)).code == 0
            assert await _pull(asker, label, label, sys_flag=0, subscription=None) == code
            assert await _pull(asker, label, label, sys_flag=PULL_SUBSCRIPTION) == 19, "what it brings itself counts"

    asking(system.address, scenario)
