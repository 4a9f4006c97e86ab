"""The bill of materials of a release, in CycloneDX's JSON (`make release`): what a wheel was tested with, each package
with its licence, its hashes and what asks for it. Works without a network. Run by the Python of .venv/audit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from supply.locks import OURSELVES, PAGE, ROOT, Described, Locked, described, path, read

ROOT_REF = "root-component"  # as cyclonedx-py calls what the bill is of


def complete(bom: dict[str, Any], locked: list[Locked], texts: dict[str, Described], version: str) -> dict[str, Any]:
    """The bill with what cyclonedx-py cannot see in a lock: our version, licences, and who asks for whom. ValueError
    when it does not hold what the lock holds.
    """
    refs = {one["name"]: one["bom-ref"] for one in bom["components"]}
    told = {(one["name"], one["version"]) for one in bom["components"]}
    if told != {(one.name, one.version) for one in locked}:
        raise ValueError("the bill does not hold the packages of the lock")
    components = [{**one, "licenses": [_licence(texts[one["name"]])]} for one in bom["components"]]
    for one in components:
        one.pop("description", None)  # the line of the lock again, hashes and all
    root = {**bom["metadata"]["component"], "version": version}
    asks: dict[str, list[str]] = {name: [] for name in (OURSELVES, *refs)}
    for one in locked:
        for name in one.wanted_by:
            asks[name].append(refs[one.name])
    dependencies = [
        {"ref": ref, "dependsOn": sorted(asks[name])} for name, ref in ((OURSELVES, ROOT_REF), *refs.items())
    ]
    return {
        **bom,
        "metadata": {**bom["metadata"], "component": root},
        "components": components,
        "dependencies": dependencies,
    }


def _licence(text: Described) -> dict[str, Any]:
    is_expression = " " in text.licence
    return {"expression": text.licence} if is_expression else {"license": {"id": text.licence}}


def _bare() -> dict[str, Any]:
    words = ("requirements", "--pyproject", ROOT / "pyproject.toml", "--output-reproducible", path("runtime"))
    made = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", *map(str, words)],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(made.stdout)
    return found


def main() -> int:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="where the wheels are; the bill goes beside them")
    directory = parser.parse_args().directory
    (wheel,) = directory.glob("*-none-any.whl")
    _name, version, _tag = wheel.name.split("-", 2)
    locked = read(path("runtime").read_text(encoding="utf-8"))
    bom = complete(_bare(), locked, described(PAGE.read_text(encoding="utf-8")), version)
    text = json.dumps(bom, indent=1) + "\n"
    if wrong := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise SystemExit(f"no valid bill of materials: {wrong}")
    target = directory / f"{OURSELVES}-{version}.cdx.json"
    target.write_text(text, encoding="utf-8")
    print(f"{target}: {len(locked)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
