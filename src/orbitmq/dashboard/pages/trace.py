"""What producers and consumers wrote down about a message, as bars on a line of time."""

from __future__ import annotations

from orbitmq.admin.answers import Found
from orbitmq.admin.traces import Traced, trace
from orbitmq.dashboard.asking import Asked, Shown, shows
from orbitmq.dashboard.timing import WIDTH, charts
from orbitmq.message.topics import TRACE_TOPIC


@shows("trace", "trace.html")
async def traced(asked: Asked) -> Shown:
    name = asked.query.text("q", at_most=1024)
    topic = asked.query.text("topic", TRACE_TOPIC, at_most=255)
    values = {"name": name, "topic": topic, "default_topic": TRACE_TOPIC, "line": WIDTH}
    if not name:
        return Shown({**values, "charts": [], "records": [], "why": None})
    told = await trace(asked.session, name, topic)
    found = Found[Traced](failures=told.failures)
    return Shown({**values, "charts": charts(told.records), "records": told.records, "why": told.why}, found)
