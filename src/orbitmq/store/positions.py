"""The three kinds of position, as types of their own. Mixing them is the oldest bug of every log; mypy refuses it."""

from __future__ import annotations

from typing import NewType

PhysicalOffset = NewType("PhysicalOffset", int)  # byte in the endless stream of the commit log
QueueOffset = NewType("QueueOffset", int)  # number of an entry in one queue, from 0
FilePosition = NewType("FilePosition", int)  # byte within one file

NO_OFFSET = PhysicalOffset(-1)
