"""The golden frames as tests of wire, bodies and servers read them. Knows the capture's form, not the protocol."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from tests.support.golden import GOLDEN, rows


@dataclass(frozen=True)
class Frame:
    """One captured frame: `row` is what the capture says about it."""

    file: str
    row: dict[str, Any]

    @cached_property
    def data(self) -> bytes:
        """The frame with its length."""
        return bytes.fromhex(self.row["hex"])

    @property
    def body(self) -> bytes:
        return self.data[len(self.data) - self.row["body_len"] :]

    @property
    def name(self) -> str:
        """The request's name, for its response too."""
        return str(self.row["name"])

    @property
    def is_response(self) -> bool:
        return self.row["kind"] == "response"

    def __repr__(self) -> str:
        return f"{self.file}:{self.row['id']}:{self.name}:{self.row['kind']}"


@cache
def files() -> tuple[str, ...]:
    """Every capture, those of whole sessions included, relative to `frames/`."""
    root = GOLDEN / "frames"
    found = sorted(str(path.relative_to(root)) for path in root.rglob("*.jsonl*"))
    return tuple(name for name in found if "stdout" not in name and "results" not in name)


@cache
def frames(file: str) -> tuple[Frame, ...]:
    """The frames of one capture in time order."""
    return tuple(Frame(file, row) for row in rows(file))


@cache
def all_frames() -> tuple[Frame, ...]:
    """About ten thousand frames."""
    return tuple(frame for file in files() for frame in frames(file))
