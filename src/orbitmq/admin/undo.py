"""Restore an undo file, whichever command wrote it. Knows no file system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from orbitmq.admin import acl, groups, offsets, resends, topic_changes
from orbitmq.admin.plans import UNDO_ALL, Plan, joined
from orbitmq.admin.session import Session
from orbitmq.errors import BadArgument

COMMANDS = (UNDO_ALL, topic_changes.UNDO, groups.UNDO, acl.UNDO, resends.UNDO)
"""Commands that an undo file may name, in the order in which they restore."""


async def plan_undo(session: Session, undo: Mapping[str, Any], secret: str | None = None) -> Plan:
    """Everything the file keeps is there again: topics first, then groups with their offsets, then accounts; `secret`
    is for an account that was deleted. AdminError for a file of another form.
    """
    try:
        parts = msgspec.convert(undo.get("parts", [undo]), list[dict[str, Any]])
    except msgspec.ValidationError as error:
        raise BadArgument(f"this is no undo file: {error}") from error
    plans = []
    for command in COMMANDS[1:]:
        mine = [part for part in parts if part.get("command") == command]
        if command == groups.UNDO and mine:
            plans.append(await offsets.plan_undo(session, {"parts": mine}))
        elif command == topic_changes.UNDO:
            plans += [await topic_changes.plan_undo(session, part) for part in mine]
        elif command == acl.UNDO:
            plans += [await acl.plan_undo(session, part, secret) for part in mine]
        elif command == resends.UNDO:
            plans += [await resends.plan_undo(session, part) for part in mine]
    return plans[0] if len(plans) == 1 else joined(f"restore what {len(plans)} changes removed", plans)
