"""The command `wait`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.verbs import noun, reads

if TYPE_CHECKING:
    from orbitmq.admin.results import Result
    from orbitmq.admin.session import Session
    from orbitmq.admin.wait_conditions import Waited

app = noun("wait", "Wait until something is so: for scripts and tests.")


@reads(
    app, "wait", "Waited",
    ("THING=thing", "FOR=condition", "HOLDS=holds", "WAITED=waitedMs", "LAST=last"),
)  # fmt: skip
async def wait(
    session: Session,
    thing: Annotated[str, typer.Argument(metavar="THING", help="cluster, broker, topic, group or message.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name; not for the cluster.")] = "",
    condition: Annotated[str, typer.Option("--for", metavar="CONDITION", help="The condition, see above.")] = "",
    within: Annotated[float, typer.Option("--wait", min=0, metavar="SECONDS", help="Give up after SECONDS.")] = 60,
) -> Result[Waited]:
    """Wait for a condition.

    \b
    cluster --for healthy             every broker responds, nothing is critical
    broker NAME --for up              it is registered and responds
    topic NAME --for exists, gone     every name server has a route to it, or none
    group NAME --for online, offline  a member is connected, or none
    group NAME --for lag=N            its lag is at most N, retries included
    message ID --for stored           found by its offset id, or as TOPIC/KEY

    \b
    Exit code: 0 the condition is met, 8 it was not met in time.

    \b
    Examples:
      orbitmq wait group billing --for lag=0 --wait 120
      orbitmq wait cluster --for healthy -q
    """
    from orbitmq.admin import wait_conditions

    return await wait_conditions.wait(session, thing, name, condition, within)
