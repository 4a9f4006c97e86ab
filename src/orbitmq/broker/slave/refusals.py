"""Requests that only a master may serve, and how a slave refuses them: with RocketMQ's codes."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.net.connection import Connection
from orbitmq.net.routing import Handler, Router
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import FLAG_ONEWAY, Command
from orbitmq.wire.request import Slave
from orbitmq.wire.requests import RequestCode


def refuse_masters_work(router: Router, broker_name: str, refusal: Callable[[Command, int, str], Command]) -> None:
    """Have `router` refuse requests that would change the master's data. `refusal` makes the response to a send."""

    def send(_connection: Connection, command: Command) -> Command:
        remark = f"this is a slave of {broker_name}, which accepts no messages; send to its master"
        return refusal(command, ResponseCode.SERVICE_NOT_AVAILABLE, remark)

    def change(_connection: Connection, command: Command) -> Command:
        remark = f"this is a slave of {broker_name}: topics and groups are changed at its master and copied from there"
        return command.response(ResponseCode.SYSTEM_ERROR, remark)

    def end_transaction(_connection: Connection, command: Command) -> Command | None:
        if command.flag & FLAG_ONEWAY:
            return None
        remark = f"this is a slave of {broker_name}: transactions end at its master"
        return command.response(ResponseCode.SLAVE_NOT_AVAILABLE, remark)

    refusals: dict[Slave, Handler] = {
        Slave.REFUSES_SEND: send,
        Slave.REFUSES_CHANGE: change,
        Slave.REFUSES_END: end_transaction,
    }
    router.wrap(lambda request, handler: refusals.get(request.slave, handler))


def refuse_promotion(router: Router, broker_name: str) -> None:
    """Have a master report that it is one."""

    def promote(_connection: Connection, command: Command) -> Command:
        remark = f"this broker is no slave: it is the master of {broker_name} already"
        return command.response(ResponseCode.SYSTEM_ERROR, remark)

    router.add(RequestCode.PROMOTE_SLAVE, promote)


def refuse_switch(router: Router, broker_name: str) -> None:
    """Have a broker report that its master is not elected."""

    def refuse(_connection: Connection, command: Command) -> Command:
        remark = f"the replicas of {broker_name} do not elect their master (option agreement): use broker promote"
        return command.response(ResponseCode.SYSTEM_ERROR, remark)

    for request in (RequestCode.SWITCH_MASTER, RequestCode.SET_MAINTENANCE):
        router.add(request, refuse)
