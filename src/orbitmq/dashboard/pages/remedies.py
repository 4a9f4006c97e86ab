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
from orbitmq.message.topics import retry_topic


@dataclass(frozen=True, slots=True)
class Remedy:
    """A button. With `fields` it is a form that leads to a plan; without, a link."""

    text: str
    path: str
    """Path below the cluster."""
    page: str
    """The path of that page in the table of pages."""
    role: Role = Role.VIEWER
    fields: Mapping[str, str] = field(default_factory=dict)


def _topic(finding: Finding, _: str) -> Remedy:
    topic = finding.evidence["topic"]
    return Remedy(f"Show {topic}", f"topics/{part(topic)}", "topics/{topic}")


def _no_topic(finding: Finding, _: str) -> Remedy:
    return Remedy(f"Create {finding.evidence['topic']}", "topics", "topics")


def _broker(finding: Finding, _: str) -> Remedy:
    name = finding.evidence["broker"]
    return Remedy(f"Show {name}", f"brokers/{part(name)}", "brokers/{broker}")


def _enable(_: Finding, group: str) -> Remedy:
    path = f"groups/{part(group)}/change"
    return Remedy("Enable consumption", path, "groups/{group}/change", Role.ADMIN, {"consume_enable": "yes"})


def _skip(finding: Finding, group: str) -> Remedy:
    return _reset("Skip the backlog", finding, group, "end")


def _to_begin(finding: Finding, group: str) -> Remedy:
    return _reset("Reset to the earliest message", finding, group, "begin")


def _to_end(finding: Finding, group: str) -> Remedy:
    return _reset("Reset to the end", finding, group, "end")


def _reset(text: str, finding: Finding, group: str, to: str) -> Remedy:
    fields = {"topic": str(finding.evidence["topic"]), "to": to, "force": "on"}
    path = f"groups/{part(group)}/offsets/reset"
    return Remedy(text, path, "groups/{group}/offsets/reset", Role.OPERATOR, fields)


def _stack(finding: Finding, group: str) -> Remedy:
    client = finding.evidence["clientId"]
    path = f"stacks/{part(client)}?group={part(group)}"
    return Remedy(f"Stacks of {client}", path, "stacks/{client:path}", Role.OPERATOR)


def _dead_letters(_: Finding, group: str) -> Remedy:
    return Remedy("Dead letters", f"dead-letters/{part(group)}", "dead-letters/{group}")


def _retries(_: Finding, group: str) -> Remedy:
    return Remedy("Retry messages", f"messages?topic={part(retry_topic(group))}", "messages")


def _members(_: Finding, group: str) -> Remedy:
    return Remedy("Members", f"groups/{part(group)}#members", "groups/{group}")


def _subscriptions(_: Finding, group: str) -> Remedy:
    return Remedy("Subscriptions", f"groups/{part(group)}#subscriptions", "groups/{group}")


def _queues(_: Finding, group: str) -> Remedy:
    return Remedy("Queues", f"groups/{part(group)}?sort=-lag#queues", "groups/{group}")


def _groups(_: Finding, _group: str) -> Remedy:
    return Remedy("All groups", "groups", "groups")


def _overview(_: Finding, _group: str) -> Remedy:
    return Remedy("Overview", "", "")


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
    """The evidence: its key, the key as a text, and the value."""
    return [(key, _in_words(key), value) for key, value in finding.evidence.items()]


def _in_words(key: str) -> str:
    """`lastPullAtMs` as `last pull at`: the value shows its unit."""
    return re.sub("([A-Z])", lambda found: " " + found[1].lower(), key.removesuffix("Ms"))


def remedies(finding: Finding, group: str) -> list[Remedy]:
    """The buttons of a finding about the group; none if no page helps."""
    made = OF.get(finding.rule)
    found = [] if made is None else [made(finding, group)]
    paths = {page.path for page in PAGES}
    return [one for one in found if one.page in paths]
