"""What is printed of a campaign. Pure: values in, lines out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bench.soak.campaign import Outcome
from bench.soak.checker import AGAIN, EARLY, falls, may_be_lost, repeats, twice
from bench.soak.cluster import PAIRS
from bench.soak.history import (
    ACKED,
    LEFT,
    Copied,
    Delivered,
    Fault,
    Moved,
    Popped,
    Posted,
    Probe,
    Progress,
    Promoted,
    Rang,
    Sent,
    Timed,
    Worked,
    of_kind,
)
from bench.soak.plan import KINDS, PROMOTE, THAW


def lines(outcome: Outcome) -> Iterator[str]:
    """Tables in Markdown, and the verdict."""
    faults = [one for one in of_kind(outcome.events, Fault) if one.kind not in (PROMOTE, THAW)]
    deaths = of_kind(outcome.events, Promoted)
    kinds = {False: PROMOTE, True: THAW}
    faults += [Fault(kinds[one.thawed], one.former, one.killed, one.ended) for one in deaths]  # felt by both nodes
    yield f"seed {outcome.settings.seed}: {len(faults)} faults in {outcome.seconds:.0f} s"
    if outcome.note:
        yield outcome.note
    yield ""
    yield from _faults(faults)
    yield ""
    forced, emptied = sum(one.forced for one in deaths), sum(one.emptied for one in deaths)
    yield f"promotions: {len(deaths)}, forced: {forced}; refused former masters that came back empty: {emptied}"
    roles = Counter(one.role for one in deaths)
    yield "roles kept: " + (", ".join(f"{role} {count}" for role, count in sorted(roles.items())) or "none")
    probes = Counter((one.why, one.served) for one in of_kind(outcome.events, Probe))
    for (why, served), count in sorted(probes.items()):
        yield f"requests at a {why}: {count}, {'served' if served else 'refused'}"
    if deaths:
        pairs = {pair.name: pair for pair in PAIRS}
        receipts = [one for one in of_kind(outcome.events, Sent) if one.status]
        gone = sum(may_be_lost(one, one.place, pairs[one.broker], deaths) for one in receipts)
        yield f"messages with a receipt that only a dead master had: {gone:,}"
    yield ""
    yield from _sends(of_kind(outcome.events, Sent))
    yield ""
    yield from _rest(outcome)
    yield ""
    violations = outcome.verdict.violations
    yield f"violations: {sum(outcome.verdict.counts.values())}"
    yield from violations


def _faults(faults: list[Fault]) -> Iterator[str]:
    targets = sorted({fault.target for fault in faults})
    counts = Counter((fault.kind, fault.target) for fault in faults)
    sums = Counter(fault.kind for fault in faults)
    yield "| fault | " + " | ".join(targets) + " | all |"
    yield "|---|" + "--:|" * (len(targets) + 1)
    for kind in KINDS:
        yield f"| {kind} | " + " | ".join(str(counts[kind, target] or "") for target in targets) + f" | {sums[kind]} |"


def _sends(sent: list[Sent]) -> Iterator[str]:
    words = [one.status or one.error.partition(":")[0] for one in sent]
    counts = Counter(zip((one.broker for one in sent), words, strict=True))
    brokers = sorted({one.broker for one in sent})
    yield "| sends | " + " | ".join(brokers) + " |"
    yield "|---|" + "--:|" * len(brokers)
    for word in sorted(set(words)):
        yield f"| {word} | " + " | ".join(f"{counts[broker, word]:,}" for broker in brokers) + " |"


def _rest(outcome: Outcome) -> Iterator[str]:
    came = sum(one.came for one in of_kind(outcome.events, Moved))
    yield f"members of the group that came: {came}, and went: {len(of_kind(outcome.events, Moved)) - came}"
    works = [one.key for one in of_kind(outcome.events, Worked)]
    yield f"done by workers: {len(works):,}, of them again: {len(works) - len(set(works)):,}"
    timed, rang = of_kind(outcome.events, Timed), of_kind(outcome.events, Rang)
    receipts = sum(1 for one in timed if one.status)
    yield (
        f"timer messages: {len(timed):,}, with a receipt: {receipts:,}; delivered: {len({one.key for one in rang}):,}, "
        f"of them stored twice: {twice(rang):,}"
    )
    yield from _pops(outcome)
    keys = [one.key for one in of_kind(outcome.events, Delivered)]
    progress = of_kind(outcome.events, Progress)
    yield f"deliveries: {len(keys):,}, of them again: {len(keys) - len(set(keys)):,}"
    yield f"looks at the logs of slaves: {len(of_kind(outcome.events, Copied)):,}"
    yield f"readings of progress: {len(progress):,}, lower after a fault: {sum(1 for _ in falls(progress)):,}"
    yield "ends of the logs: " + ", ".join(f"{node} {log.end:,}" for node, log in outcome.logs.items())


def _pops(outcome: Outcome) -> Iterator[str]:
    """Of POP consumption, by those who speak remoting and gRPC."""
    posted, popped = of_kind(outcome.events, Posted), of_kind(outcome.events, Popped)
    for by in sorted({one.by for one in posted}):
        sends, came = [one for one in posted if one.by == by], [one for one in popped if one.by == by]
        fates = Counter(one.fate for one in came)
        yield (
            f"POP by {by}: {len(sends):,} sent, with a receipt: {sum(bool(one.status) for one in sends):,}; "
            f"delivered: {len(came):,}, of them redelivered: {sum(one.times > 0 for one in came):,}, "
            f"acknowledged: {fates[ACKED]:,}, left or hidden for longer or less: {fates[LEFT]:,}"
        )
    if posted:
        found = [one for one in repeats(outcome.events, PAIRS) if one.excuse]
        rules, excuses = Counter(one.rule for one in found), Counter(one.excuse for one in found)
        yield f"{AGAIN}: {rules[AGAIN]:,}; {EARLY}: {rules[EARLY]:,}; as these allow: {dict(excuses)}"
