"""Who has changed what through this page."""

from __future__ import annotations

from orbitmq.dashboard.asking import Asked, Shown, shows
from orbitmq.dashboard.roles import Role


@shows("audit", "audit.html", Role.ADMIN)
async def audit(asked: Asked) -> Shown:
    return Shown({"lines": asked.audit.latest()})
