"""What the lock files and the table of dependencies say. Reads text; knows no package registry and no environment."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = ("runtime", "failover", "build", "data", "dev", "connect", "fuzz", "tools", "airflow", "dbt")
PAGE = ROOT / "docs" / "supply-chain.md"
OURSELVES = "orbitmq"

_PINNED = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+)", re.MULTILINE)
_VIA = re.compile(r"^    #(?: via|  ) ([a-z0-9][\w.-]*)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_ROW = re.compile(r"^\| `([a-z0-9.-]+)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Locked:
    """One package of a lock. `wanted_by` are the packages that ask for it, OURSELVES among them where we do."""

    name: str
    version: str
    hashes: tuple[str, ...]
    wanted_by: tuple[str, ...]


@dataclass(frozen=True)
class Described:
    """A package as the page has it."""

    licence: str
    purpose: str


def path(lock: str) -> Path:
    return ROOT / "requirements" / f"{lock}.lock"


def read(text: str) -> list[Locked]:
    """The packages of a lock that pip-compile has written."""
    starts = [*_PINNED.finditer(text)]
    ends = [*(found.start() for found in starts[1:]), len(text)]
    return [_locked(found, text[found.end() : end]) for found, end in zip(starts, ends, strict=True)]


def _locked(found: re.Match[str], rest: str) -> Locked:
    return Locked(found[1], found[2], tuple(_HASH.findall(rest)), tuple(_VIA.findall(rest)))


def described(page: str) -> dict[str, Described]:
    """The table of the page: package -> its licence as SPDX writes it, and what it is for."""
    return {name: Described(licence.strip(), purpose.strip()) for name, licence, purpose in _ROW.findall(page)}
