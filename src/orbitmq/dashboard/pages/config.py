"""Configuration as code: differences between brokers, the cluster as a document, and the form to apply one."""

from __future__ import annotations

import asyncio

from orbitmq.admin import brokers, config_as_code
from orbitmq.admin.config_as_code import SECTIONS
from orbitmq.admin.declared import SecretReference, dump, parse
from orbitmq.admin.plans import Plan
from orbitmq.dashboard.lists import ROWS
from orbitmq.dashboard.roles import Role
from orbitmq.dashboard.routes import DashboardRequest, Download, PageContent, PageResult, plans, shows
from orbitmq.errors import BadField, ConfigurationError, Conflict

DOCUMENT_CHARS_MAX = 2 << 20
"""Size of some twenty thousand topics; larger documents need the command line."""
BODY_BYTES_MAX = 3 * DOCUMENT_CHARS_MAX
"""The same in a form, URL-encoded."""
FRESH_SECONDS = 10.0


@shows("config", "config.html")
async def config(request: DashboardRequest) -> PageContent:
    cached = await request.cluster.cached(
        "differences",
        lambda session: asyncio.gather(brokers.differences(session), config_as_code.compare(session)),
        FRESH_SECONDS,
    )
    settings, tables = cached.value
    names = sorted(
        {name for row in settings.items for name in row.values} | {name for row in tables.items for name in row.values}
    )
    values = {
        "settings": settings.items,
        "divergences": tables.items[:ROWS],
        "divergent": len(tables.items),
        "names": names,
        "sections": SECTIONS,
    }
    return PageContent(values, settings, tables, age_seconds=cached.age_seconds)


@shows("config/export", "config.html")
async def export(request: DashboardRequest) -> PageResult:
    """Conflict if a part is missing: applying the document later would delete it."""
    sections = [name for name in request.query.many("section") if name in SECTIONS]
    if not sections:
        raise BadField(f"section is missing; use some of {', '.join(SECTIONS)}")
    found = await config_as_code.export(request.session, sections)
    if found.failures:
        lines = "; ".join(f"{one.target}: {one.message}" for one in found.failures)
        raise Conflict(f"not exported, because a part is missing: {lines}", found.failures[0].hint)
    text = await asyncio.to_thread(dump, found.items[0])
    return Download(f"{request.cluster.name}.yaml", "application/yaml", text.encode())


@plans("config/apply", Role.ADMIN, back="config", body_bytes_max=BODY_BYTES_MAX)
async def apply(request: DashboardRequest) -> Plan:
    text = request.form.raw("document", at_most=DOCUMENT_CHARS_MAX)
    if not text.strip():
        raise BadField("document is missing")
    try:
        document = await asyncio.to_thread(parse, text)
    except ConfigurationError as error:
        raise BadField(f"document: {error}") from error
    return await config_as_code.plan_apply(request.session, document, _no_secret, prune=request.form.flag("prune"))


def _no_secret(_reference: SecretReference) -> str | None:
    """A document may reference secrets in files or variables of its author's machine, not of this one."""
    raise BadField(
        "document: this page does not read secrets",
        "leave them out and set secrets on the Access page, or use: orbitmq config apply",
    )
