"""Proxies before brokers of the other system: `orbitmq proxy` before RocketMQ 5.3.3 and 4.9.7, and the proxy of 5.3.3
before orbitmq, with an official client of RocketMQ 5. The scenarios are those of test_grpc_clients.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from bench.proxy import JavaClusterProxy
from orbitmq.wire.headers_pop import PollingInfoHeader
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.v2 import messages as v2
from orbitmq.wire.v2.enums import Code, MessageType, TransactionResolution
from tests.interop import test_grpc_clients as scenarios
from tests.interop.conftest import DECISIONS_AT_ONCE, OPTIONS_OF_FRONTS
from tests.interop.test_grpc_clients import Case, Scenario
from tests.support.asking import asking
from tests.support.five import Five, channel
from tests.support.fronts import Fronted, Place, create_topic, ends, stored
from tests.support.grpc_clients import GrpcDriver
from tests.support.java_rocketmq import ROCKETMQ_5, JavaSystem
from tests.support.orbit_process import OrbitBroker, OrbitProxy, OrbitUp
from tests.support.process import wait_until

CLIENT, OURS = "python", "orbitmq before java-5"
BACK_S = 15  # RocketMQ looks every few seconds for what is to be redelivered
DEADLINE_S = 30  # of a receive, which RocketMQ does not serve without any
PAIRS: dict[str, Callable[[], Fronted]] = {
    OURS: lambda: Fronted(
        JavaSystem(ROCKETMQ_5, timerWheelEnable="true", **OPTIONS_OF_FRONTS, **DECISIONS_AT_ONCE), OrbitProxy
    ),
    "java-5 before orbitmq": lambda: Fronted(OrbitUp(**OPTIONS_OF_FRONTS), JavaClusterProxy),
}


def an_abandoned_receive_leaves_what_comes_to_the_next(case: Case) -> None:
    """Long before the invisible time is over. The proxy of RocketMQ keeps it until then."""
    topic, group = case.topic("abandoned"), case.group("abandoned")
    header = PollingInfoHeader(group, topic, -1)

    def is_waiting() -> bool:
        answer = asking(case.front.address, lambda asker: asker.ask(RequestCode.POLLING_INFO, header))
        return (answer.ext or {}).get("pollingNum") == "1"

    async def main() -> None:
        async with channel(int(case.front.endpoint.partition(":")[2])) as made:
            client = Five(made)
            await client.consume(group, topic)
            waiting = asyncio.create_task(client.receive(group, topic, poll_s=20, timeout=DEADLINE_S))
            await asyncio.to_thread(wait_until, is_waiting, 10, "it to wait")
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert (await client.send(topic, b"x")).status.code == Code.OK
            begun, found = time.monotonic(), []
            while not found and time.monotonic() < begun + BACK_S:
                found = await client.receive(group, topic, timeout=DEADLINE_S)
            assert [one.body for one in found] == [b"x"]

    asyncio.run(main())


SCENARIOS = (
    scenarios.test_messages_arrive_as_they_were_sent,
    scenarios.test_a_push_consumer_gets_a_message_group_in_order,
    scenarios.test_two_consumers_share_a_group,
    scenarios.a_message_comes_again_when_its_consumer_says,
    scenarios.an_unacknowledged_message_comes_again,
    scenarios.a_message_that_always_fails_is_dead_after_its_attempts,
    scenarios.transactions_are_decided_by_their_producer_or_when_it_is_asked,
    scenarios.a_delayed_message_comes_when_due,
    scenarios.a_recalled_message_does_not_come,
)


@pytest.fixture(scope="module", params=PAIRS)
def begun(request: pytest.FixtureRequest) -> Iterator[dict[Scenario, Future[None]]]:
    """All scenarios at once: most of them is waiting."""
    wanted = [*SCENARIOS, *([an_abandoned_receive_leaves_what_comes_to_the_next] if request.param == OURS else [])]
    with PAIRS[request.param]() as front, GrpcDriver(CLIENT) as driver, ThreadPoolExecutor(len(wanted)) as pool:
        case = Case(front, CLIENT, driver)
        yield {scenario: pool.submit(scenario, case) for scenario in wanted}
        front.check_alive()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__.removeprefix("test_"))
def test_proxy(begun: dict[Scenario, Future[None]], scenario: Scenario) -> None:
    begun[scenario].result()


@pytest.mark.parametrize("begun", [OURS], indirect=True)
def test_an_abandoned_receive_leaves_what_comes_to_the_next(begun: dict[Scenario, Future[None]]) -> None:
    begun[an_abandoned_receive_leaves_what_comes_to_the_next].result()


# ------------------------------------------------------------------------------------------------------ before 4.9.7


@pytest.fixture(scope="module")
def before_four() -> Iterator[Fronted]:
    with Fronted(JavaSystem(), OrbitProxy) as running:
        yield running


async def test_a_producer_sends_to_a_broker_of_four(before_four: Fronted) -> None:
    """It has no types to check."""
    async with channel(before_four.proxy.port) as made:
        client = Five(made)
        await asyncio.to_thread(create_topic, before_four, "FourOrders")
        await client.produce("FourOrders")
        for group in ({}, {"message_group": "g"}, {"message_type": MessageType.TRANSACTION}):
            answer = await client.send("FourOrders", b"x", tag="t", **group)
            assert answer.status.code == Code.OK, answer
        # RocketMQ enters a message into its queue after it has acknowledged it.
        await asyncio.to_thread(wait_until, lambda: stored(before_four, "FourOrders") == 2, 10, "the first two")
        request = v2.EndTransactionRequest(
            message_id=answer.entries[0].message_id, transaction_id=answer.entries[0].transaction_id,
            resolution=TransactionResolution.COMMIT,
        )  # fmt: skip
        request.topic.name = "FourOrders"
        assert (await client.call("EndTransaction", request)).status.code == Code.OK
        await asyncio.to_thread(wait_until, lambda: stored(before_four, "FourOrders") == 3, 10, "the transaction's")


async def test_a_consumer_is_told_that_a_broker_of_four_cannot(before_four: Fronted) -> None:
    async with channel(before_four.proxy.port) as made:
        client = Five(made)
        await asyncio.to_thread(create_topic, before_four, "FourRead")
        await client.consume("four-readers", "FourRead")
        request = client.to_receive("four-readers", "FourRead", poll_s=5)
        (answer, _end) = await client.call("ReceiveMessage", request)
        assert answer.status.code == Code.NOT_IMPLEMENTED
        assert "knows no POP consumption" in answer.status.message


# ----------------------------------------------------------------------------------------------------- side by side


async def test_both_proxies_send_a_message_group_to_one_queue() -> None:
    """Of a topic that several brokers have."""
    with ExitStack() as stack:
        first = stack.enter_context(OrbitUp(name="broker-b"))
        second = stack.enter_context(OrbitBroker(first.namesrv_address, name="broker-a"))
        proxies = [stack.enter_context(kind(first.namesrv_address)) for kind in (JavaClusterProxy, OrbitProxy)]
        brokers = [Place(proxies[0].address, first.namesrv_address, one.address) for one in (first, second)]
        for broker in brokers:
            await asyncio.to_thread(create_topic, broker, "Ordered", "FIFO", read=3, write=3)
        counts = []
        for group in map(str, range(4)):
            for proxy in proxies:
                async with channel(proxy.port) as made:
                    answer = await Five(made).send("Ordered", b"x", message_group=group)
                    assert answer.status.code == Code.OK, answer
                found = await asyncio.to_thread(lambda: [ends(broker, "Ordered", 3) for broker in brokers])
                counts.append(found)
        assert not [one for queues in counts[-1] for one in queues if one % 2]
        for after_one, after_both in zip(counts[::2], counts[1::2], strict=True):
            assert sum(one % 2 for queues in after_one for one in queues) == 1
            assert not [one for queues in after_both for one in queues if one % 2]
