"""The trace of a message: what producers and consumers recorded about it, as bars on a time axis."""

from __future__ import annotations

from orbitmq.admin.results import Result
from orbitmq.admin.traces import Traced, trace
from orbitmq.dashboard.routes import DashboardRequest, PageContent, shows
from orbitmq.dashboard.trace_chart import WIDTH, charts
from orbitmq.message.topics import TRACE_TOPIC


@shows("trace", "trace.html")
async def traced(request: DashboardRequest) -> PageContent:
    name = request.query.text("q", at_most=1024)
    topic = request.query.text("topic", TRACE_TOPIC, at_most=255)
    values = {"name": name, "topic": topic, "default_topic": TRACE_TOPIC, "line": WIDTH}
    if not name:
        return PageContent({**values, "charts": [], "records": [], "why": None})
    traced = await trace(request.session, name, topic)
    found = Result[Traced](failures=traced.failures)
    return PageContent(
        {**values, "charts": charts(traced.records), "records": traced.records, "why": traced.why}, found
    )
