"""Pages of groups, offsets and clients over a cluster of two brokers: what each role may do, fields that are wrong, and
what is shown while a broker, or a member, does not answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from orbitmq.admin.groups import plan_alter, plan_create
from orbitmq.admin.session import Session
from orbitmq.client import ConsumeConcurrentlyStatus, Message
from orbitmq.client.sync import Producer, PushConsumer
from orbitmq.dashboard.accounts import put
from orbitmq.dashboard.roles import Role
from orbitmq.message.model import MessageQueue
from orbitmq.operations.offsets import update_consumer_offset
from orbitmq.testing.cluster import Cluster
from orbitmq.wire.requests import RequestCode
from tests.support.dashboards import OrbitDashboard, Page, Visitor
from tests.support.process import wait_until
from tests.support.sessions import asked

PASSWORD = "correct horse"
TOPIC, GROUP, QUEUES, EACH = "T", "left", 2, 3
PATIENCE_S = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as running:
        running.create_topic(TOPIC, QUEUES)
        with Producer("p", running.namesrv_address) as producer:
            for broker in running.broker_names:
                for number in range(QUEUES * EACH):
                    queue = MessageQueue(TOPIC, broker, number % QUEUES)
                    producer.send(Message(TOPIC, b"%d" % number), queue=queue)
        asked(running.namesrv_address, _left)
        yield running


async def _left(session: Session) -> None:
    await (await plan_create(session, GROUP)).make()
    for node in await session.masters():
        for number in range(QUEUES):
            queue = MessageQueue(TOPIC, node.name, number)
            await update_consumer_offset(session.remoting, node.address, GROUP, queue, 1)


@pytest.fixture(scope="module")
def visitors(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[Role, Visitor]]:
    path = tmp_path_factory.mktemp("accounts") / "dashboard.toml"
    for role in Role:
        put(path, role.word, role, PASSWORD)
    with OrbitDashboard(cluster.namesrv_address, "--accounts", path, "--sample", 0) as dashboard:
        found = {role: dashboard.visitor() for role in Role}
        for role, visitor in found.items():
            assert visitor.log_in(role.word, PASSWORD).status != 401
        yield found


@pytest.fixture
def admin(visitors: Mapping[Role, Visitor]) -> Visitor:
    return visitors[Role.ADMIN]


def consumer(cluster: Cluster, group: str, expression: str = "*", instance: str = "DEFAULT") -> PushConsumer:
    made = PushConsumer(group, cluster.namesrv_address, instance_name=instance)
    made.subscribe(TOPIC, expression)
    made.set_listener(lambda *_: ConsumeConcurrentlyStatus.CONSUME_SUCCESS)
    return made


WRITES = {
    "new-group": (Role.ADMIN, {"group": "made"}),
    f"groups/{GROUP}/change": (Role.ADMIN, {"retry_max_times": "3"}),
    f"groups/{GROUP}/delete": (Role.ADMIN, {}),
    f"groups/{GROUP}/offsets/reset": (Role.OPERATOR, {"topic": TOPIC, "to": "begin", "force": "on"}),
    f"groups/{GROUP}/offsets/skip": (Role.OPERATOR, {"topic": TOPIC}),
    f"groups/{GROUP}/offsets/clone": (Role.OPERATOR, {"destination": "other"}),
}


def _token(visitor: Visitor) -> str:
    (token,) = {value for name, value in visitor.get("").form("/logout").fields if name == "csrf"}
    return token


@pytest.mark.parametrize("path", WRITES)
def test_each_role_may_do_what_it_may_and_no_more(visitors: Mapping[Role, Visitor], path: str) -> None:
    needed, fields = WRITES[path]
    for role, visitor in visitors.items():
        answer = visitor.post(path, {**fields, "csrf": _token(visitor)})
        if role >= needed:
            assert (answer.status, answer.title) == (200, "Confirm this change"), role
        else:
            assert answer.status == 403, role
            assert f"this needs {needed.word}" in answer.title
        assert visitor.post(path, fields).status == 403, "a form without its token"


def test_a_viewer_sees_everything_and_is_offered_nothing_to_change(visitors: Mapping[Role, Visitor]) -> None:
    for path in ("groups", f"groups/{GROUP}", f"groups/{GROUP}/why", f"groups/{GROUP}/offsets", "clients"):
        page = visitors[Role.VIEWER].get(path)
        assert page.status == 200, path
        assert [one.action for one in page.forms if one.method == "post"] == ["/logout"], path
    assert visitors[Role.VIEWER].get("stacks/somebody?group=left").status == 403
    assert visitors[Role.OPERATOR].get("stacks/somebody?group=left").status == 404


BAD = {
    "new-group": ({"group": ""}, "group is missing"),
    "new-group?": ({"group": "made up"}, "made up"),
    "new-group??": ({"group": "made", "retry_max_times": "many"}, "retry_max_times is 'many'"),
    "new-group???": ({"group": "made", "broker": "10.0.0.1:10911"}, "broker is '10.0.0.1:10911'"),
    f"groups/{GROUP}/change": ({}, "no setting to change"),
    f"groups/{GROUP}/change?": ({"consume_enable": "perhaps"}, "consume_enable is 'perhaps'"),
    f"groups/{GROUP}/offsets/reset": ({"topic": TOPIC, "to": "there"}, "to is 'there'"),
    f"groups/{GROUP}/offsets/reset?": ({"topic": TOPIC, "to": "time", "time": "noon"}, "time: 'noon'"),
    f"groups/{GROUP}/offsets/reset??": ({"topic": TOPIC, "to": "offset", "offset": "-1"}, "offset is '-1'"),
    f"groups/{GROUP}/offsets/reset???": ({"topic": TOPIC, "to": "shift", "shift": "far"}, "shift is 'far'"),
    f"groups/{GROUP}/offsets/reset????": ({"topic": TOPIC, "to": "end", "queues": "zero"}, "queues: 'zero'"),
    f"groups/{GROUP}/offsets/skip": ({"topic": ""}, "topic is missing"),
    f"groups/{GROUP}/offsets/clone": ({"destination": ""}, "destination is missing"),
}


@pytest.mark.parametrize("path", BAD)
def test_a_field_that_is_wrong_is_named(admin: Visitor, path: str) -> None:
    fields, told = BAD[path]
    answer = admin.post(path.rstrip("?"), {**fields, "csrf": _token(admin)})
    assert answer.status == 400
    assert told in answer.title


def test_a_list_that_is_asked_for_wrongly_names_the_field(admin: Visitor) -> None:
    for query, told in (("only=those", "only is 'those'"), ("sort=size", "sort is 'size'"), ("from=x", "from is 'x'")):
        answer = admin.get(f"groups?{query}")
        assert answer.status == 400
        assert told in answer.title


def test_rules_that_differ_between_brokers_are_marked(cluster: Cluster, admin: Visitor) -> None:
    async def differ(session: Session) -> None:
        await (await plan_create(session, "uneven")).make()
        await (await plan_alter(session, "uneven", {"retry_max_times": 7}, brokers=["broker-b"])).make()

    asked(cluster.namesrv_address, differ)
    page = admin.get("groups/uneven")
    rules = {row["Setting"]: (row["broker-a"], row["broker-b"]) for row in page.table("Configuration")}
    assert rules["Retry max times"] == ("16", "7")
    assert page.text.count('class="differs"') == 2
    assert "the rules of uneven differ between brokers" in page.words


def test_a_broker_that_does_not_answer_makes_a_group_partial_and_no_smaller(cluster: Cluster, admin: Visitor) -> None:
    silent = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    fault = cluster.disconnect(silent, times=None, broker="broker-b")
    try:
        page = admin.get("groups?system=on")  # of this no answer is kept yet
    finally:
        fault.end()
    assert "Partial:" in page.words
    assert "broker-b (" in page.words
    (row,) = [row for row in page.table("Groups") if row["Group"] == GROUP]
    assert row["Lag"] == f"≥ {QUEUES * (EACH - 1)}"

    fault = cluster.disconnect(RequestCode.GET_CONSUME_STATS, times=None, broker="broker-b")
    try:
        one = admin.get("groups/broken/why")
        group = admin.get("groups/broken")
    finally:
        fault.end()
    assert "broker-b (" in one.words
    assert "does not respond" in one.words
    assert "Lag –" in group.words


def test_members_that_are_silent_do_not_hold_the_page_up(cluster: Cluster, admin: Visitor) -> None:
    fault = cluster.drop(RequestCode.GET_CONSUMER_RUNNING_INFO, times=None)
    with consumer(cluster, "silent"):
        try:
            page = admin.get("groups/silent")
            assert "Members have not responded yet" in page.words
            assert "Not loaded yet" in page.words
        finally:
            fault.end()


def test_members_that_differ_are_told_on_top(cluster: Cluster, admin: Visitor) -> None:
    with consumer(cluster, "torn", "*", "one"), consumer(cluster, "torn", "red", "two"):

        def told(page: Page) -> Page | None:
            return page if "members of torn subscribe T differently" in page.words else None

        page = wait_until(lambda: told(admin.get("groups/torn")), PATIENCE_S, "the members to be compared")
        assert sorted(row["Expression"] for row in page.table("Subscriptions")) == ["*", "red"]
