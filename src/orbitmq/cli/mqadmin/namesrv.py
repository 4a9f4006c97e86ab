"""mqadmin commands for name servers. Each gets the request, because they do not replicate each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from orbitmq.cli.mqadmin.forms import settings
from orbitmq.cli.mqadmin.runner import Work
from orbitmq.operations.kv import delete_kv, put_kv
from orbitmq.operations.routes import add_write_permission, wipe_write_permission
from orbitmq.operations.settings import change_name_server_settings, name_server_settings


def _writing(word: str, request: Callable[..., Awaitable[int]]) -> Callable[[Work], Awaitable[None]]:
    async def change(work: Work) -> None:
        broker = work.given.text("b")
        counts = await work.each_server(lambda server: request(work.session.remoting, server, broker))
        for server, count in counts.items():
            print(f"{word} write perm of broker[{broker}] in name server[{server}] OK, {count}")

    return change


async def get_namesrv_config(work: Work) -> None:
    found = await work.each_server(lambda server: name_server_settings(work.session.remoting, server))
    for server, pairs in found.items():
        print(f"============{server}============")
        print("\n".join(settings(pairs)), end="\n\n")


async def update_namesrv_config(work: Work) -> None:
    key, value = work.given.text("k"), work.given.text("v")
    done = await work.each_server(
        lambda server: change_name_server_settings(work.session.remoting, server, {key: value})
    )
    if done:
        print(f"update name server config success![{', '.join(done)}]\n{key} : {value}")


async def update_kv_config(work: Work) -> None:
    namespace, key, value = (work.given.text(letter) for letter in "skv")
    await work.each_server(lambda server: put_kv(work.session.remoting, server, namespace, key, value))
    if not work.failures:
        print("create or update kv config to namespace success.")


async def delete_kv_config(work: Work) -> None:
    namespace, key = (work.given.text(letter) for letter in "sk")
    await work.each_server(lambda server: delete_kv(work.session.remoting, server, namespace, key))
    if not work.failures:
        print("delete kv config from namespace success.")


COMMANDS = {
    "wipeWritePerm": _writing("wipe", wipe_write_permission),
    "addWritePerm": _writing("add", add_write_permission),
    "getNamesrvConfig": get_namesrv_config,
    "updateNamesrvConfig": update_namesrv_config,
    "updateKvConfig": update_kv_config,
    "deleteKvConfig": delete_kv_config,
}
