"""Names of topics, groups, brokers and contexts for shell completion: from a cache, else from the cluster.

The shell waits for this at each TAB. So results of the last 30 s are used from the cache, a query has a time limit, and
an error completes nothing and prints nothing. Heavy modules are imported only if the cluster is queried.
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
"""How long cached names are used: they change seldom, and the shell completes at each TAB."""
FAILED_SECONDS = 5.0
"""How long a failed query is not repeated: the terminal would hang at each TAB."""
QUERY_SECONDS = 1.5
"""Time limit of a query. That of a request is a little less, so that responses of other nodes still count."""
REQUEST_MS = 1200.0
NAMES_MAX = 2000
"""With more names the shell shows none."""
FILES_MAX = 50
_NAME = re.compile(r"[A-Za-z0-9_%][A-Za-z0-9_%.:-]*")
"""Names with other characters are not completed, because the shell would interpret them. RocketMQ allows `|` in names,
and bash would insert it unquoted."""


def _topics(context: typer.Context, incomplete: str) -> list[str]:
    return _names("topics", context, incomplete)


def _groups(context: typer.Context, incomplete: str) -> list[str]:
    return _names("groups", context, incomplete)


def _brokers(context: typer.Context, incomplete: str) -> list[str]:
    return _names("brokers", context, incomplete)


def contexts(incomplete: str) -> list[str]:
    """The contexts of the file."""
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
"""Shell -> its completion script. The line is passed as typed: bash splits words at colons."""

COMPLETED: dict[str, Callable[..., list[str]]] = {
    "TOPIC": _topics, "[TOPIC]": _topics, "GROUP": _groups, "SOURCE": _groups, "DESTINATION": _groups,
    "BROKER": _brokers, "[BROKER]": _brokers,
}  # fmt: skip
"""Metavariable in help texts -> its completion."""


def completed(annotation: Any) -> Any:
    """The annotation of a parameter, with a completion if its metavariable has one."""
    for info in getattr(annotation, "__metadata__", ()):
        found = COMPLETED.get(getattr(info, "metavar", None) or "")
        if found is not None and info.autocompletion is None:
            info.autocompletion = found
    return annotation


def _names(kind: str, context: typer.Context, incomplete: str) -> list[str]:
    found: list[str] = []
    with _silent():
        place = _place(kind, context.params)
        cached, is_fresh = _cached(place)
        found += _matching(cached if is_fresh else _queried(kind, context.params, place, cached), incomplete)
    return found


def _matching(names: list[str], incomplete: str) -> list[str]:
    """Names with a leading % (system topics, retry topics, dead letters) only if the word begins with a %."""
    return [
        name
        for name in names
        if name.startswith(incomplete)
        and (incomplete.startswith("%") or not name.startswith("%"))
        and _NAME.fullmatch(name)
    ][:NAMES_MAX]


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing is printed: the user is typing on this terminal."""
    with suppress(Exception), Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stderr(nowhere):
        yield


def _place(kind: str, given: dict[str, Any]) -> Path:
    """The cache file of this query: one for each combination of kind and selected cluster."""
    config = os.environ.get("ORBITMQ_CONFIG") or os.environ.get("XDG_CONFIG_HOME") or ""
    meant = [
        kind, given.get("name_servers"), given.get("context_name"), given.get("cluster"), config,
        os.environ.get("NAMESRV_ADDR"), os.environ.get("ORBITMQ_CONTEXT"),
    ]  # fmt: skip
    digest = hashlib.sha256(json.dumps(meant, default=str).encode()).hexdigest()
    return cache_folder("names") / f"{digest[:16]}.json"


def _cached(place: Path) -> tuple[list[str], bool]:
    """The names in the file, and whether they are fresh."""
    try:
        stored = json.loads(place.read_bytes())
        names, until = [str(name) for name in stored["names"]], float(stored["until"])
    except (OSError, ValueError, KeyError, TypeError):
        return [], False
    return names, 0 <= until - time.time() <= FRESH_SECONDS


def _queried(kind: str, given: dict[str, Any], place: Path, before: list[str]) -> list[str]:
    """The names from the cluster; the cached ones if it cannot be queried."""
    names = _bounded(lambda: _of_cluster(kind, given))
    seconds = FAILED_SECONDS if names is None else FRESH_SECONDS
    found = before if names is None else names
    _cache(place, found, seconds)
    return found


def _cache(place: Path, names: list[str], seconds: float) -> None:
    from orbitmq.runtime.files import replace_text

    with suppress(OSError):
        replace_text(place, json.dumps({"until": time.time() + seconds, "names": names}))
        for path in sorted(place.parent.glob("*.json"), key=lambda one: one.stat().st_mtime)[:-FILES_MAX]:
            path.unlink(missing_ok=True)


def _bounded(work: Callable[[], list[str]]) -> list[str] | None:
    """None if the work fails or takes too long; the limit also covers name resolution."""

    def over(_number: int, _frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, QUERY_SECONDS)
    try:
        return work()
    except Exception:  # the user is in the middle of a line: no error may be printed into it
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

    async def query() -> list[str]:
        async with opened(context, REQUEST_MS) as session:
            return sorted(set(await _KINDS[kind](session)))

    return asyncio.run(query())


async def _topic_names(session: Session) -> list[str]:
    from orbitmq.admin.topics import TopicType, listed

    return [row.topic for row in (await listed(session, everything=True)).items if row.type is not TopicType.SYSTEM]


async def _group_names(session: Session) -> list[str]:
    from orbitmq.admin.groups import groups

    return [row.name for row in (await groups(session)).items]


async def _broker_names(session: Session) -> list[str]:
    return [node.name for node in await session.nodes()]


_KINDS = {"topics": _topic_names, "groups": _group_names, "brokers": _broker_names}
