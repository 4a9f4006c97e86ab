"""The promises of admin.session, admin.responses and admin.plans: nobody's silence hides another's answer, and a change
is told as what became of it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orbitmq.admin.plans import Change, Plan, Step, StepOutcome, Value, joined
from orbitmq.admin.results import FIXED, failure_of
from orbitmq.admin.session import IN_FLIGHT_MAX, Node, Session, nearest
from orbitmq.broker.settings import _refused
from orbitmq.errors import BrokerError, ConnectError, NoNameServer, NotFound, RemotingTimeout
from orbitmq.net.remoting import Remoting
from orbitmq.wire.bodies import BrokerData, ClusterInfo
from orbitmq.wire.codes import ResponseCode

INFO = ClusterInfo(
    brokers={
        "b": BrokerData("b", "East", {1: "h:3"}),
        "a": BrokerData("a", "East", {1: "h:2", 0: "h:1"}),
        "w": BrokerData("w", "Other", {0: "h:9"}),
    },
    clusters={"East": ["a", "b"], "Other": ["w"]},
)


def session(cluster: str | None = None, *servers: str) -> Session:
    made = Session(Remoting(), servers or ("n:1",), cluster=cluster)
    made._info = INFO
    return made


def run(work: Any) -> Any:
    return asyncio.run(work)


def test_nodes_come_masters_first_and_only_of_the_cluster() -> None:
    async def names(one: Session) -> list[str]:
        return [f"{node.name}:{node.id}" for node in await one.nodes()]

    assert run(names(session())) == ["a:0", "a:1", "b:1", "w:0"]
    assert run(names(session("East"))) == ["a:0", "a:1", "b:1"]
    assert [node.address for node in run(session("East").masters())] == ["h:1"]
    assert [node.address for node in run(session("East").readable())] == ["h:1", "h:3"]
    assert run(session().headless()) == ["b"]
    with pytest.raises(NotFound) as caught:
        run(session("Eastt").nodes())
    assert caught.value.hint == "did you mean East?"


def test_a_broker_is_meant_by_name_number_or_address() -> None:
    found = {text: run(session().node(text)).address for text in ("a", "a:1", "h:2", "b", "other:7")}
    assert found == {"a": "h:1", "a:1": "h:2", "h:2": "h:2", "b": "h:3", "other:7": "other:7"}
    with pytest.raises(NotFound):
        run(session().node("nobody"))
    assert nearest("broker-1", ["broker-a", "zzz"]) == "did you mean broker-a?"
    assert nearest("x", ["broker-a"]) is None


def test_the_first_name_server_that_answers_is_believed() -> None:
    async def ask(address: str) -> str:
        if address != "n:3":
            raise ConnectError(f"{address} refused")
        return address

    assert run(session(None, "n:1", "n:2", "n:3").any_name_server(ask)) == "n:3"
    with pytest.raises(NoNameServer, match=r"n:1 refused; n:2 refused"):
        run(session(None, "n:1", "n:2").any_name_server(ask))


def test_a_silent_node_is_named_beside_the_answers_of_the_others() -> None:
    running = most = 0

    async def ask(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        if number == 1:
            raise RemotingTimeout("no answer in 5000 ms")
        return number * 10

    async def all_of_them() -> Any:
        return await session().each({number: f"broker {number}" for number in range(50)}, ask)

    gathered = run(all_of_them())
    assert gathered.responses == {number: number * 10 for number in range(50) if number != 1}
    (failure,) = gathered.failures
    assert (failure.target, failure.name, failure.retryable) == ("broker 1", "TIMEOUT", True)
    assert most == IN_FLIGHT_MAX
    assert gathered.result().partial


def test_questions_that_ask_further_ones_do_not_wait_for_each_other() -> None:
    async def outer(one: Session, number: int) -> int:
        async def inner(more: int) -> int:
            await asyncio.sleep(0)
            return more

        return sum((await one.each(dict.fromkeys(range(number), "x"), inner)).responses.values())

    async def all_of_them() -> Any:
        one = session()
        async with asyncio.timeout(10):
            return await one.each(dict.fromkeys(range(3 * IN_FLIGHT_MAX), "x"), lambda number: outer(one, number))

    assert run(all_of_them()).responses[4] == 0 + 1 + 2 + 3


def test_a_bug_is_not_told_as_a_silent_node() -> None:
    async def ask(_number: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(session().each({1: "one"}, ask))


@pytest.mark.parametrize(
    ("error", "name", "retryable"),
    [
        (BrokerError(ResponseCode.TOPIC_NOT_EXIST, "no"), "TOPIC_NOT_EXIST", False),
        (BrokerError(ResponseCode.SYSTEM_BUSY, "busy"), "SYSTEM_BUSY", True),
        (BrokerError(4711, ""), "CODE_4711", False),
        (ConnectError("refused"), "UNREACHABLE", True),
        (RemotingTimeout("late"), "TIMEOUT", True),
        (NotFound("no", "look there"), "FAILED", False),
    ],
)
def test_failures_are_named(error: Any, name: str, retryable: bool) -> None:
    failure = failure_of(str(Node("C", "a", 0, "h:1")), error)
    assert (failure.target, failure.name, failure.retryable) == ("a (h:1)", name, retryable)
    assert failure.message


@pytest.mark.parametrize(
    ("remark", "hint"),
    [
        ("option listenPort cannot be changed by a request; set it in the configuration file", "restart it"),
        ("Can not update config: listenPort", "restart it"),
        ("no permission for DELETE_TOPIC_IN_BROKER", "use an account with the permission"),
        ("AclException: No accessKey is configured", "use an account with the permission"),
    ],
)
def test_what_no_account_may_is_told_apart_from_what_another_one_may(remark: str, hint: str) -> None:
    assert hint in (failure_of("a", BrokerError(ResponseCode.NO_PERMISSION, remark)).hint or "")


def test_what_a_broker_does_not_take_while_it_runs_has_the_remark_that_is_looked_for() -> None:
    assert any(text in _refused("listenPort").remark for text in FIXED)


def plan(chain: str | None, values: dict[str, Value], *steps: tuple[str, Value, bool]) -> Plan:
    def change(subject: str, after: Value, fails: bool) -> Change:
        async def make() -> None:
            if fails:
                raise BrokerError(1, "it broke")
            values[subject] = after

        async def read_back() -> Value:
            return values.get(subject)

        return Change(Step("a", "set", subject, values.get(subject), after), make, read_back, chain)

    other = Change(Step("b", "set", "other", None, 3), change("other", 3, False).make, chain="another")
    return Plan("set them", [*(change(*step) for step in steps), other])


@pytest.mark.parametrize(("chain", "last"), [(None, StepOutcome.CONFIRMED), ("one", StepOutcome.SKIPPED)])
def test_steps_after_a_failure_are_skipped_only_where_they_stand_on_it(chain: str | None, last: StepOutcome) -> None:
    values: dict[str, Value] = {"same": 1}
    wanted = plan(chain, values, ("same", 1, False), ("one", 1, False), ("bad", 1, True), ("two", 2, False))

    async def made() -> Any:
        return await wanted.verify(await wanted.make())

    found = run(made())
    outcomes = {step.subject: step.outcome for step in found.items}
    assert outcomes == {
        "same": StepOutcome.UNCHANGED, "one": StepOutcome.CONFIRMED, "bad": StepOutcome.FAILED, "two": last,
        "other": StepOutcome.DONE,
    }  # fmt: skip
    assert ("two" in values) is (last is StepOutcome.CONFIRMED)
    assert [failure.target for failure in found.failures] == ["a: set bad"]


def test_what_several_plans_miss_is_told_once() -> None:
    silent = failure_of("broker-b", RemotingTimeout("no answer in 5000 ms"))
    plans = [Plan(name, warnings=["look twice", name], failures=[silent]) for name in ("one", "two")]
    whole = joined("both", plans)
    assert (whole.warnings, whole.failures) == (["look twice", "one", "two"], [silent])
