"""The deployment files are what their linters want, agree with each other, and leave a daemon the time it needs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from packaging.requirements import Requirement

import orbitmq
from orbitmq.broker.broker import STOP_PATIENCE_SECONDS
from orbitmq.broker.options import BrokerOptions
from orbitmq.cli import configuration
from orbitmq.namesrv.options import NamesrvOptions
from orbitmq.net.tls_options import TlsOptions
from orbitmq.store.options import StoreOptions
from tests.support.deployments import (
    DEPLOY,
    FAILOVER,
    KUBERNETES,
    KUBERNETES_FAILOVER,
    Written,
    compose,
    image_instructions,
    kustomization,
    objects,
    of_compose,
    of_kind,
    of_kubernetes,
    of_systemd,
    units,
)
from tests.support.kubernetes_api import VERBS
from tests.support.orbit_process import ORBITMQ

ROOT = DEPLOY.parent
TOOLS = Path(sys.executable).parent
VERSIONS = ("1.32", "1.37")  # the first with pod-index labels and ordinals for good, the newest with a schema
EXPOSURE_MAX = 15  # tenths; systemd calls 2.0 and less safe
LEAVING_SECONDS = 20  # a broker leaves the routes and answers what waits before it writes

FOLDERS = (KUBERNETES, KUBERNETES_FAILOVER)
COMPOSE = ("compose.yaml", FAILOVER)
DAEMONS: list[Written] = [
    *(of_systemd(kind) for kind in ("namesrv", "broker")),
    *(daemon for file in COMPOSE for daemon in of_compose(file)),
    *(daemon for folder in FOLDERS for daemon in of_kubernetes(folder)),
]


def lint(*command: object, cwd: Path = ROOT) -> str:
    """What the linter says; it must be content."""
    result = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def tool(name: str) -> str:
    """A program of the system; one that is not there is named in the reason of the skip."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed on this machine")
    return found


# -------------------------------------------------------------------------------------------------------------- linters


@pytest.mark.parametrize("kind", ["namesrv", "broker"])
def test_systemd_takes_the_units_and_finds_them_closed(tmp_path: Path, kind: str) -> None:
    analyze = tool("systemd-analyze")
    text = units()[kind].path.read_text(encoding="utf-8").replace("/opt/orbitmq/bin/orbitmq", str(ORBITMQ))
    unit = tmp_path / f"orbitmq-{kind}.service"
    unit.write_text(text, encoding="utf-8")
    assert lint(analyze, "verify", "--man=no", unit) == ""
    lint(analyze, "security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE_MAX}", unit)


def test_systemd_takes_the_user_of_the_units() -> None:
    file = DEPLOY / "systemd" / "orbitmq.sysusers"
    lint(tool("systemd-sysusers"), "--dry-run", file)
    made = re.findall(r"^u (\S+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    assert [unit["User"] for unit in units().values()] == made * 2


@pytest.mark.parametrize("file", sorted(DEPLOY.rglob("Dockerfile")), ids=lambda path: path.parent.name)
def test_hadolint_takes_the_container_files(file: Path) -> None:
    assert lint(TOOLS / "hadolint", file) == ""


@pytest.mark.parametrize("file", COMPOSE)
def test_compose_files_follow_their_schema(file: str) -> None:
    lint(TOOLS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "container" / file)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifests_follow_the_schemas_of_kubernetes(version: str) -> None:
    for folder in FOLDERS:
        for found in objects(folder):
            kubernetes_validate.validate(found, version, strict=True)


@pytest.mark.parametrize("folder", FOLDERS)
def test_kustomize_takes_the_manifests(folder: str) -> None:
    rendered = list(yaml.safe_load_all(lint(tool("kubectl"), "kustomize", DEPLOY / folder)))
    assert sorted(map(_identity, rendered)) == sorted(map(_identity, objects(folder)))


def _identity(found: dict[str, Any]) -> tuple[str, str]:
    return found["kind"], found["metadata"]["name"]


# ------------------------------------------------------------------------------------------------------------ agreement


@pytest.mark.parametrize("daemon", DAEMONS, ids=lambda daemon: daemon.name)
def test_configurations_hold_nothing_that_is_not_acted_on(tmp_path: Path, daemon: Written) -> None:
    kind = "broker" if daemon.is_broker else "namesrv"
    tables = (BrokerOptions, StoreOptions, TlsOptions) if daemon.is_broker else (NamesrvOptions, TlsOptions)
    file = tmp_path / f"{kind}.conf"
    file.write_text(daemon.files[f"/etc/orbitmq/{kind}.conf"], encoding="utf-8")
    settings = [value for flag, value in zip(daemon.command, daemon.command[1:], strict=False) if flag == "--set"]
    pairs, remarks = configuration.read(file, {}, *tables, settings=settings)
    assert remarks == []
    for table in tables:
        table.parse(pairs)


@pytest.mark.parametrize("daemon", DAEMONS, ids=lambda daemon: daemon.name)
def test_a_stop_gets_the_time_it_may_take(daemon: Written) -> None:
    assert daemon.grace_s >= (STOP_PATIENCE_SECONDS + LEAVING_SECONDS if daemon.is_broker else LEAVING_SECONDS)


def test_the_image_is_the_one_of_this_version() -> None:
    images = kustomization()["images"]
    assert [image["newTag"] for image in images] == [orbitmq.__version__]
    assert kustomization(KUBERNETES_FAILOVER)["images"] == images
    for file in COMPOSE:
        images = {service["image"] for service in compose(file)["services"].values() if "command" in service}
        assert images == {f"orbitmq:{orbitmq.__version__}"}


def test_the_image_does_and_looks_as_the_master_of_the_compose_file() -> None:
    """Which the tests start."""
    instructions = image_instructions()
    master = compose()["services"]["master"]
    command = json.loads(instructions["CMD"][-1])
    assert json.loads(instructions["ENTRYPOINT"][0]) == ["orbitmq"]
    assert master["command"][: len(command)] == command
    probe = json.loads(instructions["HEALTHCHECK"][0].partition("CMD ")[2])
    assert probe == ["sh", "-c", master["healthcheck"]["test"][1]]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_pod_can_be_stopped_and_probed_and_has_a_place_of_its_own(folder: str) -> None:
    for stateful in of_kind("StatefulSet", folder):
        pod = stateful["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        probes = [container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")]
        assert len({json.dumps(probe["exec"]) for probe in probes}) == 1
        (rule,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert _chooses(rule["labelSelector"], stateful)
        budgets = [
            budget
            for budget in of_kind("PodDisruptionBudget", folder)
            if _chooses(budget["spec"]["selector"], stateful)
        ]
        assert [budget["spec"]["maxUnavailable"] for budget in budgets] == [1]
        services = [found["metadata"]["name"] for found in of_kind("Service", folder) if _serves(found, stateful)]
        assert services == [stateful["spec"]["serviceName"]]
        assert stateful["spec"]["volumeClaimTemplates"]


def _chooses(selector: dict[str, Any], stateful: dict[str, Any]) -> bool:
    return bool(selector["matchLabels"].items() <= stateful["spec"]["template"]["metadata"]["labels"].items())


def _serves(service: dict[str, Any], stateful: dict[str, Any]) -> bool:
    return _chooses({"matchLabels": service["spec"]["selector"]}, stateful)


def test_the_account_of_brokers_may_do_with_leases_what_they_need() -> None:
    (brokers,) = [
        one for one in of_kind("StatefulSet", KUBERNETES_FAILOVER) if "orbitmq/broker-name" in one["metadata"]["labels"]
    ]
    assert brokers["spec"]["template"]["spec"]["automountServiceAccountToken"] is True
    (account,), (role,), (binding,) = of_kind("ServiceAccount"), of_kind("Role"), of_kind("RoleBinding")
    assert brokers["spec"]["template"]["spec"]["serviceAccountName"] == account["metadata"]["name"]
    assert [one["name"] for one in binding["subjects"]] == [account["metadata"]["name"]]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (rule,) = role["rules"]
    assert rule["resources"] == ["leases"]
    assert set(rule["verbs"]) == VERBS  # with less of them a test of the store fails


# ------------------------------------------------------------------------------------------------------------ the guide


def test_the_guide_names_every_file_and_no_other() -> None:
    guide = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    named = {match.rstrip(".") for match in re.findall(r"deploy/[\w./-]+[\w]", guide)}
    named -= {f"deploy/{folder}" for folder in FOLDERS}
    files = {str(path.relative_to(ROOT)) for path in DEPLOY.rglob("*") if path.is_file()}
    # The guide of clusters has the first, that of figures the others.
    elsewhere = {file for file in files if file.startswith(("deploy/spark/", "deploy/monitoring/"))}
    assert named == files - elsewhere - {"deploy/container/Dockerfile.dockerignore"}


@pytest.mark.parametrize("line", re.findall(r"\borbitmq health [^`'|\n]+", (ROOT / "docs/deployment.md").read_text()))
def test_probes_of_the_guide_are_those_of_the_files(line: str) -> None:
    probe = line.replace("FILE", "/etc/orbitmq/namesrv.conf" if "namesrv" in line else "/etc/orbitmq/broker.conf")
    assert probe.split() in [daemon.probe for daemon in of_kubernetes()]


# ------------------------------------------------------------------------------------------------------------ the image


def test_what_the_image_copies_is_enough_for_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORBITMQ_BUILD", "interpreted")  # what is compiled is in the same files
    copied = [line.split()[:-1] for line in image_instructions()["COPY"] if not line.startswith("--from")]
    sources = [source for line in copied for source in line]
    ignored = (DEPLOY / "container" / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for source in sources:
        assert any((ROOT / source).resolve() in _let_in(line) for line in ignored), f"{source} is not let in"
    for source in copied[0]:
        shutil.copy(ROOT / source, tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    lint(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "wheels", cwd=tmp_path)
    (wheel,) = (tmp_path / "wheels").glob(f"orbitmq-{orbitmq.__version__}-*.whl")
    assert "orbitmq/cli/health.py" in zipfile.ZipFile(wheel).namelist()


def _let_in(line: str) -> set[Path]:
    return {path.resolve() for path in ROOT.glob(line[1:])} if line.startswith("!") else set()


def _pins(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==([\w.]+) ", text, re.MULTILINE))


def test_the_image_installs_what_was_tested() -> None:
    pinned, tested = _pins("runtime.lock") | _pins("failover.lock"), _pins("dev.lock")
    assert pinned.items() <= tested.items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for needed in map(Requirement, [*project["dependencies"], *project["optional-dependencies"]["failover"]]):
        assert pinned[needed.name] in needed.specifier
