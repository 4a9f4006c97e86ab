"""The pages that solve the problem of a finding or show details: links, and forms that lead to a plan.

Only existing pages; the command is always shown as well. Decides nothing about the group.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from orbitmq.admin.verdict import EvidenceValue, Finding
from orbitmq.dashboard.formats import part
from orbitmq.dashboard.roles import Role
from orbitmq.dashboard.routes import PAGES
from orbitmq.dashboard.words import N_
from orbitmq.message.topics import retry_topic
from orbitmq.runtime.languages import gettext


@dataclass(frozen=True, slots=True)
class Remedy:
    """A button. With `fields` it is a form that leads to a plan; without, a link."""

    text: str
    """In English, with `%(name)s` for `name`."""
    path: str
    """Path below the cluster."""
    page: str
    """The path of that page in the table of pages."""
    role: Role = Role.VIEWER
    fields: Mapping[str, str] = field(default_factory=dict)
    name: str = ""

    @property
    def label(self) -> str:
        """The text in the language of the page."""
        return gettext(self.text) % {"name": self.name}


def _topic(finding: Finding, _: str) -> Remedy:
    topic = finding.evidence["topic"]
    return Remedy(N_("Show %(name)s"), f"topics/{part(topic)}", "topics/{topic}", name=str(topic))


def _no_topic(finding: Finding, _: str) -> Remedy:
    return Remedy(N_("Create %(name)s"), "topics", "topics", name=str(finding.evidence["topic"]))


def _broker(finding: Finding, _: str) -> Remedy:
    name = finding.evidence["broker"]
    return Remedy(N_("Show %(name)s"), f"brokers/{part(name)}", "brokers/{broker}", name=str(name))


def _enable(_: Finding, group: str) -> Remedy:
    path = f"groups/{part(group)}/change"
    return Remedy(N_("Enable consumption"), path, "groups/{group}/change", Role.ADMIN, {"consume_enable": "yes"})


def _skip(finding: Finding, group: str) -> Remedy:
    return _reset(N_("Skip the backlog"), finding, group, "end")


def _to_begin(finding: Finding, group: str) -> Remedy:
    return _reset(N_("Reset to the earliest message"), finding, group, "begin")


def _to_end(finding: Finding, group: str) -> Remedy:
    return _reset(N_("Reset to the end"), finding, group, "end")


def _reset(text: str, finding: Finding, group: str, to: str) -> Remedy:
    fields = {"topic": str(finding.evidence["topic"]), "to": to, "force": "on"}
    path = f"groups/{part(group)}/offsets/reset"
    return Remedy(text, path, "groups/{group}/offsets/reset", Role.OPERATOR, fields)


def _stack(finding: Finding, group: str) -> Remedy:
    client = finding.evidence["clientId"]
    path = f"stacks/{part(client)}?group={part(group)}"
    return Remedy(N_("Stacks of %(name)s"), path, "stacks/{client:path}", Role.OPERATOR, name=str(client))


def _dead_letters(_: Finding, group: str) -> Remedy:
    return Remedy(N_("Dead letters"), f"dead-letters/{part(group)}", "dead-letters/{group}")


def _retries(_: Finding, group: str) -> Remedy:
    return Remedy(N_("Retry messages"), f"messages?topic={part(retry_topic(group))}", "messages")


def _members(_: Finding, group: str) -> Remedy:
    return Remedy(N_("Members"), f"groups/{part(group)}#members", "groups/{group}")


def _subscriptions(_: Finding, group: str) -> Remedy:
    return Remedy(N_("Subscriptions"), f"groups/{part(group)}#subscriptions", "groups/{group}")


def _queues(_: Finding, group: str) -> Remedy:
    return Remedy(N_("Queues"), f"groups/{part(group)}?sort=-lag#queues", "groups/{group}")


def _groups(_: Finding, _group: str) -> Remedy:
    return Remedy(N_("All groups"), "groups", "groups")


def _overview(_: Finding, _group: str) -> Remedy:
    return Remedy(N_("Overview"), "", "")


OF: Mapping[str, Callable[[Finding, str], Remedy]] = {
    "unknown": _groups,
    "disabled": _enable,
    "no-topic": _no_topic,
    "broker-not-readable": _broker,
    "topic-not-readable": _topic,
    "subscriptions-differ": _subscriptions,
    "not-subscribed": _skip,
    "stuck-listener": _stack,
    "not-pulling": _stack,
    "offset-ahead": _to_end,
    "dead-letters": _dead_letters,
    "listener-fails": _retries,
    "no-answer": _overview,
    "not-connected": _members,
    "not-locked": _members,
    "unread-queues": _topic,
    "unowned-queues": _members,
    "shared-queues": _members,
    "more-clients-than-queues": _members,
    "hot-queue": _queues,
    "flow-control": _members,
    "expired": _queues,
    "begins-at-the-end": _to_begin,
    "different-versions": _members,
    "different-name-servers": _members,
}
"""Rule -> its remedy."""


def evidence_of(finding: Finding) -> list[tuple[str, str, EvidenceValue]]:
    """The evidence: its key, the key as a text in the language of the page, and the value."""
    return [(key, gettext(_in_words(key)), value) for key, value in finding.evidence.items()]


def _in_words(key: str) -> str:
    """`lastPullAtMs` as `last pull at`: the value shows its unit."""
    return re.sub("([A-Z])", lambda found: " " + found[1].lower(), key.removesuffix("Ms"))


def remedies(finding: Finding, group: str) -> list[Remedy]:
    """The buttons of a finding about the group; none if no page helps."""
    made = OF.get(finding.rule)
    found = [] if made is None else [made(finding, group)]
    paths = {page.path for page in PAGES}
    return [one for one in found if one.page in paths]
