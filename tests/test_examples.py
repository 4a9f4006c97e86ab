"""Every example runs to its end and prints the facts its text promises."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image
from matplotlib.colors import to_rgb

from orbitmq.testing import Cluster
from tests.support.examples import EXAMPLES, FACTS, PICTURES, run_example

FILLED = 0.4  # of a picture's height and width; the rest is titles and margins
SHADE = 0.1  # between two values of a colour that count as one


def test_every_example_is_run_and_listed() -> None:
    files = {path.name for path in EXAMPLES.glob("*.py")}
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(\w+\.py)\]\(\1\)(?: \*)? \| \S.*\|$", text, re.MULTILINE)
    assert files == set(FACTS)
    assert sorted(files) == sorted(listed)
    others = {path.name for path in EXAMPLES.iterdir() if path.is_file()} - files - {"README.md"}
    assert not [name for name in others if f"]({name})" not in text]


@pytest.fixture(scope="module")
def namesrv_address() -> Iterator[str]:
    with Cluster(enablePropertyFilter=True) as cluster:
        yield cluster.namesrv_address


@pytest.mark.parametrize("name", FACTS)
def test_an_example_does_what_it_says(namesrv_address: str, name: str, tmp_path: Path) -> None:
    run_example(name, namesrv_address, tmp_path)
    for picture, colour in PICTURES.get(name, {}).items():
        (path,) = tmp_path.rglob(picture)
        height, width = _extent(path, colour)
        assert min(height, width) > FILLED, f"{picture} shows next to nothing"


def _extent(picture: Path, colour: str) -> tuple[float, float]:
    """Over which parts of its height and width a picture has a colour."""
    pixels = image.imread(picture)[:, :, :3]
    places = np.abs(pixels - to_rgb(colour)).max(axis=2) < SHADE
    return places.any(axis=1).mean(), places.any(axis=0).mean()
