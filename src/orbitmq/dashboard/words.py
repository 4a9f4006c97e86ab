"""Single words that pages show in the user's language though they come from tables of other modules.

`N_` marks a text for the catalogue where it is defined; the filter `word` translates it where it is shown.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.runtime.languages import N_ as N_

WORDS = (
    # Severities and verdicts.
    N_("well"), N_("unknown"), N_("warning"), N_("critical"), N_("all is well"),
    # Roles of users and brokers.
    N_("viewer"), N_("operator"), N_("admin"), N_("master"), N_("slave"),
    # Outcomes of steps and of changes.
    N_("planned"), N_("unchanged"), N_("done"), N_("confirmed"), N_("notApplied"), N_("failed"), N_("skipped"),
    N_("begun"), N_("refused"),
    # States of messages, groups and transactions.
    N_("stored"), N_("committed"), N_("delayed"), N_("prepared"), N_("rolled back"), N_("dead"), N_("retrying"),
    N_("offline"), N_("consumed"), N_("pending"), N_("success"), N_("rolledBack"), N_("givenUp"), N_("copies"),
    N_("expired"), N_("notFound"), N_("filtered"), N_("waiting"), N_("inFlight"), N_("pulled"),
    # Steps of a trace, and of the story of a message.
    N_("sent"), N_("decided"), N_("decided, on check"), N_("checked"), N_("born"), N_("due"), N_("retry"),
    N_("consuming"),
    # Message types.
    N_("normal"), N_("fifo"), N_("delay"), N_("transaction"), N_("mixed"), N_("unspecified"),
    # Forms and charsets of bodies.
    N_("auto"), N_("text"), N_("json"), N_("hex"), N_("base64"),
    # What may differ between brokers.
    N_("topic"), N_("group"),
    # Settings of a group, as `formats.rule_name` has them.
    N_("Consume enable"), N_("Consume from min enable"), N_("Consume broadcast enable"), N_("Retry queues"),
    N_("Retry max times"), N_("Broker id"), N_("Which broker when consume slowly"),
    N_("Notify consumer ids changed enable"), N_("Consume message orderly"),
    # Evidence of a finding about a group, as `pages.remedies` has it.
    N_("broker"), N_("broker permission"), N_("brokers"), N_("cached messages"), N_("cached messages max"),
    N_("cached size mib"), N_("cached size mib max"), N_("client id"), N_("clients"), N_("code"),
    N_("consume from where"), N_("consume tps"), N_("dead letters"), N_("elsewhere"), N_("expired messages"),
    N_("expression"), N_("failed last hour"), N_("failed tps"), N_("found"), N_("hint"), N_("idle clients"),
    N_("lag messages"), N_("last consumed stored at"), N_("last error"), N_("last error at"), N_("last lock at"),
    N_("last pull at"), N_("members"), N_("missing"), N_("newest at"), N_("newest tags"), N_("perm"),
    N_("produce tps"), N_("queues"), N_("retry lag messages"), N_("skew"), N_("stack"), N_("subscriptions"),
    N_("threads"), N_("unlock attempts"),
)  # fmt: skip


TITLES: Mapping[str, str] = {
    "unknown": N_("unknown group"),
    "disabled": N_("consumption is off"),
    "no-topic": N_("no such topic"),
    "broker-not-readable": N_("broker cannot be read"),
    "topic-not-readable": N_("topic cannot be read"),
    "subscriptions-differ": N_("subscribes differently"),
    "not-subscribed": N_("subscribes no topic"),
    "stuck-listener": N_("stuck"),
    "not-pulling": N_("does not pull"),
    "offset-ahead": N_("offset beyond the end"),
    "dead-letters": N_("dead letters"),
    "listener-fails": N_("fails"),
    "no-answer": N_("does not respond"),
    "not-connected": N_("not connected to all brokers"),
    "not-locked": N_("queues not locked"),
    "unread-queues": N_("queues that are not read"),
    "unowned-queues": N_("queues without a member"),
    "shared-queues": N_("shares queues"),
    "more-clients-than-queues": N_("has no queue"),
    "hot-queue": N_("one long queue"),
    "flow-control": N_("cache is full"),
    "expired": N_("messages expired"),
    "begins-at-the-end": N_("begins at the end"),
    "different-versions": N_("different versions"),
    "suspended": N_("suspended"),
    "no-progress": N_("no progress"),
    "no-subscription": N_("subscribes no topic"),
    "offline": N_("offline"),
    "one-broker": N_("behind on one broker"),
    "too-slow": N_("too slow"),
    "filter-matches-nothing": N_("filter matches nothing"),
    "different-name-servers": N_("different name servers"),
}
"""Rule -> what it found, in two or three words."""
