"""What is remembered of brokers, forgotten by hand. Knows no connection."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from orbitmq.admin.session import nearest
from orbitmq.cli.contexts import choose
from orbitmq.cli.endings import one_line_errors
from orbitmq.cli.performing import memory_of
from orbitmq.errors import NotFound
from orbitmq.runtime.printable import printable


def forget(broker: str, name_servers: Sequence[str], context_name: str | None) -> None:
    """Ends with exit code 3 where nothing is remembered under this name."""
    with one_line_errors("cluster forget"):
        memory = memory_of(choose(name_servers, context_name, None))
        gone = asyncio.run(memory.forget(broker))
        if not gone:
            known = {one.title for one in asyncio.run(memory.known())}
            hint = nearest(broker, known) or f"remembered are: {', '.join(sorted(known)) or 'none'}"
            raise NotFound(f"no broker {broker} is remembered; {hint}", hint)
        for one in gone:
            print(printable(f"forgotten: {one.title} ({one.address})"), file=sys.stderr)
