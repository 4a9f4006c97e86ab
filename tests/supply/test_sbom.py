"""The bill of materials holds what the lock holds: versions, hashes, licences, and who asks for whom."""

from __future__ import annotations

from typing import Any

import pytest

from supply.locks import OURSELVES, Described, read
from supply.sbom import ROOT_REF, complete

LOCK = f"""\
jinja2==3.1.6 \\
    --hash=sha256:{"a" * 64} \\
    --hash=sha256:{"b" * 64}
    # via
    #   -c requirements/dev.lock
    #   orbitmq (pyproject.toml)
orjson==3.13.0 \\
    --hash=sha256:{"c" * 64}
    # via jinja2
"""
TEXTS = {"jinja2": Described("BSD-3-Clause", "pages"), "orjson": Described("MPL-2.0 AND MIT", "JSON")}


def bare(*names: tuple[str, str]) -> dict[str, Any]:
    """As cyclonedx-py writes it."""
    components = [
        {
            "bom-ref": f"requirements-L{number}",
            "name": name,
            "version": version,
            "description": "line",
            "type": "library",
        }
        for number, (name, version) in enumerate(names)
    ]
    return {"metadata": {"component": {"name": OURSELVES, "bom-ref": ROOT_REF}}, "components": components}


def test_a_lock_is_read_with_hashes_and_who_asks() -> None:
    jinja, orjson = read(LOCK)
    assert (jinja.version, jinja.hashes, jinja.wanted_by) == ("3.1.6", ("a" * 64, "b" * 64), (OURSELVES,))
    assert (orjson.version, orjson.hashes, orjson.wanted_by) == ("3.13.0", ("c" * 64,), ("jinja2",))


def test_a_bill_gets_version_licences_and_dependencies() -> None:
    bom = complete(bare(("jinja2", "3.1.6"), ("orjson", "3.13.0")), read(LOCK), TEXTS, "0.1.0")
    assert bom["metadata"]["component"] == {"name": OURSELVES, "bom-ref": ROOT_REF, "version": "0.1.0"}
    assert [one["licenses"] for one in bom["components"]] == [
        [{"license": {"id": "BSD-3-Clause"}}],
        [{"expression": "MPL-2.0 AND MIT"}],
    ]
    assert bom["dependencies"] == [
        {"ref": ROOT_REF, "dependsOn": ["requirements-L0"]},
        {"ref": "requirements-L0", "dependsOn": ["requirements-L1"]},
        {"ref": "requirements-L1", "dependsOn": []},
    ]


@pytest.mark.parametrize("held", [[("jinja2", "3.1.6")], [("jinja2", "3.1.6"), ("orjson", "3.12.0")]])
def test_a_bill_that_does_not_hold_the_lock_is_none(held: list[tuple[str, str]]) -> None:
    with pytest.raises(ValueError, match="does not hold"):
        complete(bare(*held), read(LOCK), TEXTS, "0.1.0")
