"""The audit log."""

from __future__ import annotations

from orbitmq.dashboard.roles import Role
from orbitmq.dashboard.routes import DashboardRequest, PageContent, shows


@shows("audit", "audit.html", Role.ADMIN)
async def audit(request: DashboardRequest) -> PageContent:
    return PageContent({"lines": request.audit.latest()})
