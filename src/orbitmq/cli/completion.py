"""Names of topics, groups, brokers and contexts for a shell that completes a word: from a cache, else from the cluster.

A shell waits for this at each TAB, so an answer of the last 30 s is taken as it is, a cluster is given a bounded time,
and whatever goes wrong completes nothing and says nothing. Light: what asks is imported when the cache has no answer.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from orbitmq.cli.places import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.admin.session import Session

FRESH_SECONDS = 30.0
"""Names change seldom, and a shell asks again for every TAB."""
FAILED_SECONDS = 5.0
"""So long nobody is asked again who did not answer: the terminal would hang at each TAB."""
ASK_SECONDS = 1.5
"""What a cluster is given; a request a little less, so that those who answer count."""
REQUEST_MS = 1200.0
NAMES_MAX = 2000
"""A shell that is given more shows none."""
FILES_MAX = 50
_NAME = re.compile(r"[A-Za-z0-9_%][A-Za-z0-9_%.:-]*")
"""Whatever else a name has is not handed to a shell, which reads what it is given: the `|` too that RocketMQ allows in
names, as bash would put it onto the line unquoted.
"""


def _topics(context: typer.Context, incomplete: str) -> list[str]:
    return _names("topics", context, incomplete)


def _groups(context: typer.Context, incomplete: str) -> list[str]:
    return _names("groups", context, incomplete)


def _brokers(context: typer.Context, incomplete: str) -> list[str]:
    return _names("brokers", context, incomplete)


def contexts(incomplete: str) -> list[str]:
    """Those of the file."""
    found: list[str] = []
    with _silent():
        from orbitmq.cli.contexts import load, path_of

        found += _matching(list(load(path_of()).get("contexts", {})), incomplete)
    return found


SCRIPTS = {
    "bash": r"""
_orbitmq_completion() {
    local line="${COMP_LINE:0:COMP_POINT}" at
    local -a words
    read -ra words <<< "$line"
    at=${#words[@]}
    [[ $line == *[[:space:]] ]] || at=$((at - 1))
    local IFS=$'\n'
    COMPREPLY=($(COMP_WORDS="$line" COMP_CWORD=$at _ORBITMQ_COMPLETE=complete_bash "$1" 2>/dev/null))
}
complete -o default -F _orbitmq_completion orbitmq
""",
    "zsh": r"""
#compdef orbitmq
_orbitmq() {
    local -a found
    found=(${(f)"$(COMP_WORDS="${(j: :)words[1,CURRENT]}" COMP_CWORD=$((CURRENT - 1)) \
        _ORBITMQ_COMPLETE=complete_bash $words[1] 2>/dev/null)"})
    if (( $#found )); then compadd -- $found; else _files; fi
}
compdef _orbitmq orbitmq
""",
    "fish": r"""
function __orbitmq_complete
    set -l line (commandline -cp | string collect)
    set -l at (count (commandline -opc))
    set -l found (COMP_WORDS="$line" COMP_CWORD=$at _ORBITMQ_COMPLETE=complete_bash orbitmq 2>/dev/null)
    set found (string match --invert -- '' $found)
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete --command orbitmq --no-files --arguments '(__orbitmq_complete)'
""",
}
"""Shell -> what has it ask. The line is handed over as it was typed: bash itself cuts words at colons, and so the
addresses in it.
"""

COMPLETED: dict[str, Callable[..., list[str]]] = {
    "TOPIC": _topics, "[TOPIC]": _topics, "GROUP": _groups, "SOURCE": _groups, "DESTINATION": _groups,
    "BROKER": _brokers, "[BROKER]": _brokers,
}  # fmt: skip
"""What stands for a word in help -> what completes it."""


def completed(annotation: Any) -> Any:
    """The annotation of a parameter, completed if it names one of those."""
    for info in getattr(annotation, "__metadata__", ()):
        found = COMPLETED.get(getattr(info, "metavar", None) or "")
        if found is not None and info.autocompletion is None:
            info.autocompletion = found
    return annotation


def _names(kind: str, context: typer.Context, incomplete: str) -> list[str]:
    found: list[str] = []
    with _silent():
        place = _place(kind, context.params)
        kept, is_fresh = _kept(place)
        found += _matching(kept if is_fresh else _asked(kind, context.params, place, kept), incomplete)
    return found


def _matching(names: list[str], incomplete: str) -> list[str]:
    """Those of the system, and of groups for retries and dead letters, only for who has begun with a %."""
    return [
        name
        for name in names
        if name.startswith(incomplete)
        and (incomplete.startswith("%") or not name.startswith("%"))
        and _NAME.fullmatch(name)
    ][:NAMES_MAX]


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing is said on a terminal on which somebody types."""
    with suppress(Exception), Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stderr(nowhere):
        yield


def _place(kind: str, given: dict[str, Any]) -> Path:
    """A file for each thing that can be meant."""
    config = os.environ.get("ORBITMQ_CONFIG") or os.environ.get("XDG_CONFIG_HOME") or ""
    meant = [
        kind, given.get("name_servers"), given.get("context_name"), given.get("cluster"), config,
        os.environ.get("NAMESRV_ADDR"), os.environ.get("ORBITMQ_CONTEXT"),
    ]  # fmt: skip
    digest = hashlib.sha256(json.dumps(meant, default=str).encode()).hexdigest()
    return cache_folder("names") / f"{digest[:16]}.json"


def _kept(place: Path) -> tuple[list[str], bool]:
    """What the file has, and whether that is good enough."""
    try:
        told = json.loads(place.read_bytes())
        names, until = [str(name) for name in told["names"]], float(told["until"])
    except (OSError, ValueError, KeyError, TypeError):
        return [], False
    return names, 0 <= until - time.time() <= FRESH_SECONDS


def _asked(kind: str, given: dict[str, Any], place: Path, before: list[str]) -> list[str]:
    """What the cluster says; what was known before when it does not."""
    names = _bounded(lambda: _of_cluster(kind, given))
    seconds = FAILED_SECONDS if names is None else FRESH_SECONDS
    found = before if names is None else names
    _keep(place, found, seconds)
    return found


def _keep(place: Path, names: list[str], seconds: float) -> None:
    from orbitmq.runtime.files import replace_text

    with suppress(OSError):
        replace_text(place, json.dumps({"until": time.time() + seconds, "names": names}))
        for path in sorted(place.parent.glob("*.json"), key=lambda one: one.stat().st_mtime)[:-FILES_MAX]:
            path.unlink(missing_ok=True)


def _bounded(work: Callable[[], list[str]]) -> list[str] | None:
    """None for work that fails or takes too long: a name that is not resolved is not waited for, either."""

    def over(_number: int, _frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, ASK_SECONDS)
    try:
        return work()
    except Exception:  # a shell asks in the middle of a line: whatever went wrong, nothing may be printed into it
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _of_cluster(kind: str, given: dict[str, Any]) -> list[str]:
    import asyncio

    from orbitmq.cli.contexts import choose
    from orbitmq.cli.execution import opened

    context = choose(
        given.get("name_servers") or (), given.get("context_name"), given.get("cluster"), given.get("mapped") or ()
    )

    async def ask() -> list[str]:
        async with opened(context, REQUEST_MS) as session:
            return sorted(set(await _KINDS[kind](session)))

    return asyncio.run(ask())


async def _topic_names(session: Session) -> list[str]:
    from orbitmq.admin.topics import TopicType, listed

    return [row.topic for row in (await listed(session, everything=True)).items if row.type is not TopicType.SYSTEM]


async def _group_names(session: Session) -> list[str]:
    from orbitmq.admin.groups import groups

    return [row.name for row in (await groups(session)).items]


async def _broker_names(session: Session) -> list[str]:
    return [node.name for node in await session.nodes()]


_KINDS = {"topics": _topic_names, "groups": _group_names, "brokers": _broker_names}
