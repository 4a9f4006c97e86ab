"""The promises of cli.contexts and cli.context_file: which cluster is meant, and that no secret is kept or told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orbitmq.cli.contexts import choose
from orbitmq.errors import ConfigurationError
from tests.support.commands import items, orbitmq

FILE = """\
# of the owner
current = "local"
[contexts.local]
nameServers = ["127.0.0.1:1111"]
[contexts.far]
nameServers = ["10.0.0.1:9876", "10.0.0.2:9876"]
cluster = "East"
accessKey = "admin"
secretKey = { env = "FAR_SECRET" }
mapAddr = { "172.17.0.2:10911" = "127.0.0.1:10911" }
tls = {}
"""


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("NAMESRV_ADDR", "ORBITMQ_CONTEXT", "ORBITMQ_ACCESS_KEY", "ROCKETMQ_HOME"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "config.toml"
    path.write_text(FILE)
    monkeypatch.setenv("ORBITMQ_CONFIG", str(path))
    return path


def servers(*flags: str, context: str | None = None, **environment: str) -> tuple[str, ...]:
    return choose(flags, context, None, environment={**os.environ, **environment}).name_servers


def test_flags_go_before_the_environment_and_that_before_the_context(file: Path) -> None:
    assert servers() == ("127.0.0.1:1111",)
    assert servers(ORBITMQ_CONTEXT="far") == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert servers(ORBITMQ_CONTEXT="far", NAMESRV_ADDR="a:1") == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert servers("c:3", ORBITMQ_CONTEXT="far") == ("c:3",)
    assert servers(NAMESRV_ADDR="a:1;b:2") == ("a:1", "b:2")
    assert servers("c:3,d:4", "e:5", NAMESRV_ADDR="a:1") == ("c:3", "d:4", "e:5")
    assert servers(context="far", NAMESRV_ADDR="a:1") == ("10.0.0.1:9876", "10.0.0.2:9876")
    file.unlink()
    assert servers() == ("127.0.0.1:9876",)


def test_an_account_is_not_shown_to_another_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAR_SECRET", "s3cret")
    far = choose((), "far", None)
    credentials = far.credentials()
    assert credentials is not None
    assert (credentials.access_key, credentials.secret_key) == ("admin", "s3cret")
    assert "s3cret" not in repr(far) + repr(credentials)
    assert (far.cluster, far.tls, far.addresses["172.17.0.2:10911"]) == ("East", {}, "127.0.0.1:10911")
    assert choose(["a:1"], None, None).credentials() is None


def test_a_secret_comes_from_a_file_or_a_command(file: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from a file\n")
    for reference, secret in (
        (f'{{ file = "{tmp_path}/secret" }}', "from a file"),
        ('{ command = ["printf", "from a command"] }', "from a command"),
    ):
        file.write_text(FILE.replace('{ env = "FAR_SECRET" }', reference))
        credentials = choose((), "far", None).credentials()
        assert credentials is not None
        assert credentials.secret_key == secret


def test_the_stock_tools_account_is_found(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text("accessKey: rocketmq2\nsecretKey: '12345678'\n")
    chosen = choose(["a:1"], None, None, environment={"ROCKETMQ_HOME": str(tmp_path)})
    credentials = chosen.credentials()
    assert credentials is not None
    assert (credentials.access_key, credentials.secret_key) == ("rocketmq2", "12345678")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[contexts.far]\nnameservers = []", "unknown key nameservers"),
        ('[contexts.far]\nsecretKey = "plain"', "must not be in the file"),
        ('[contexts.far]\nnameServers = ["nowhere"]', "use host:port"),
        ("[contexts", "config.toml"),
        ("", "the file is empty, its contexts are lost"),
        ("# none", "there is no context far"),
        ('[contexts.far]\naccessKey = "a"\nsecretKey = { env = "NOT_SET" }', "the environment has no NOT_SET"),
        ('[contexts.far]\naccessKey = "a"\nsecretKey = { command = ["false"] }', "false ended with 1"),
    ],
)
def test_a_wrong_file_is_named_with_the_place(file: Path, text: str, words: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=words):
        choose((), "far", None).credentials()


def test_the_file_is_changed_without_losing_the_owners_words(file: Path) -> None:
    orbitmq("context", "add", "near", "-n", "10.1.1.1:9876", "--access-key", "ops", "--secret-env", "OPS", "--readonly")
    orbitmq("context", "use", "near")
    orbitmq("context", "remove", "local")
    assert file.read_text().startswith("# of the owner")
    told = {item["name"]: item for item in items("context", "list")}
    assert set(told) == {"far", "near"}
    assert (told["near"]["inUse"], told["near"]["secret"], told["near"]["readonly"]) == (True, "env OPS", True)
    assert "there is no context gone" in orbitmq("context", "use", "gone", code=3).stderr


def test_a_mapping_that_is_none_is_refused(file: Path) -> None:
    before = file.read_text()
    assert "use FROM=TO" in orbitmq("context", "add", "odd", "-n", "h:1", "--map-addr", "10.0.0.1:10911", code=2).stderr
    assert file.read_text() == before
