"""Hooks of schemathesis for the gateway: what may wait for messages waits a moment, so that a run has an end."""

from __future__ import annotations

import math
from typing import Any

import schemathesis

WAIT_S = 0.1
LIMITS = {"waitSeconds": 30, "seconds": 3600}  # what is beyond stays, and is to be refused


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict[str, Any]) -> None:
    for place, name in ((case.body, "waitSeconds"), (case.query, "seconds")):
        if name == "seconds" and not case.path.endswith("/events"):
            continue
        value = place.get(name, WAIT_S + 1) if isinstance(place, dict) else None
        # Of a query some numbers are written already.
        if isinstance(value, int | float | str) and WAIT_S < _number(value) <= LIMITS[name]:
            place[name] = WAIT_S


def _number(value: float | str) -> float:
    """Infinite for a text that is none."""
    try:
        return float(value)
    except ValueError:
        return math.inf
