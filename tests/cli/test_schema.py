"""`orbitmq schema`: what a topic's bodies contain is registered, refused with its reason, shown, and removed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.client.sync import Producer
from orbitmq.client.typed import avro_codec
from orbitmq.operations.schemas import namespace_of
from orbitmq.schemas.model import Schema, SchemaKind
from orbitmq.testing.cluster import Cluster
from tests.support.commands import answer, items, orbitmq
from tests.support.kv_pairs import put_pair
from tests.support.schema_registry import SchemaRegistry

PROTO = """\
syntax = "proto3";
package shop;
message Line { string item = 1; }
message Order { int64 id = 1; repeated Line lines = 2; string note = 3; }
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv_address)


def record(*fields: tuple[Any, ...]) -> dict[str, Any]:
    declared = [{"name": name, "type": kind, **(more[0] if more else {})} for name, kind, *more in fields]
    return {"type": "record", "name": "Order", "fields": declared}


def written(folder: Path, name: str, content: object) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2), encoding="utf-8")
    return path


def test_versions_are_registered_compared_shown_and_removed(cluster: Cluster, tmp_path: Path) -> None:
    first = written(tmp_path, "first.avsc", record(("id", "int")))
    second = written(tmp_path, "second.avsc", record(("id", "long"), ("note", "string", {"default": ""})))
    wrong = written(tmp_path, "wrong.avsc", record(("id", "string")))
    orbitmq("schema", "register", "Orders", first)
    assert items("schema", "check", "Orders", second) == [
        {"topic": "Orders", "version": 1, "compatible": True, "reasons": []}
    ]
    orbitmq("schema", "register", "Orders", second, "--yes")
    unchanged = orbitmq("schema", "register", "Orders", first, "--fail-if-unchanged", code=10)
    assert "unchanged" in unchanged.output
    for verb in ("check", "register"):
        refused = orbitmq("schema", verb, "Orders", wrong, code=7)
        assert "version 1: field id is string, and was int" in " ".join(refused.output.split())
    (row,) = items("schema", "list", "--grep", "order")
    assert (row["kind"], row["versions"], row["latest"], row["compatibility"]) == ("avro", 2, 2, "backward")
    shown = answer("schema", "show", "Orders")["items"]
    assert [one["version"] for one in shown] == [1, 2]
    assert json.loads(shown[1]["text"]) == json.loads(second.read_text())
    with Producer("p", cluster.namesrv_address) as producer:
        known = producer.schemas("Orders").by_id(avro_codec(json.loads(first.read_text())).schema.id)
    assert known is not None, "a program has the same id for it"
    assert known.schema.id == shown[0]["schemaId"]
    orbitmq("schema", "remove", "Orders", "--version", 1, "--yes")
    assert [one["version"] for one in items("schema", "show", "Orders")] == [2]
    orbitmq("schema", "remove", "Orders", "--yes")
    assert items("schema", "list") == []


def test_the_compatibility_of_a_topic_is_changed(cluster: Cluster, tmp_path: Path) -> None:
    file = written(tmp_path, "bill.json", {"type": "object", "required": ["id"]})
    orbitmq("schema", "register", "Bills", file)
    steps = items("schema", "register", "Bills", file, "--compatibility", "full", "--yes")
    assert [(one["action"], one["before"], one["after"], one["outcome"]) for one in steps[1:]] == [
        ("set compatibility", "backward", "full", "confirmed")
    ]
    stricter = written(tmp_path, "stricter.json", {"type": "object"})
    refused = orbitmq("schema", "register", "Bills", stricter, code=7)
    assert "field id is required" in " ".join(refused.output.split())
    steps = items("schema", "register", "Bills", stricter, "--compatibility", "none", "--yes")
    assert [one["outcome"] for one in steps] == ["confirmed", "confirmed"]


def test_a_message_of_protobuf_is_registered_from_its_source_or_from_descriptors(
    cluster: Cluster, tmp_path: Path
) -> None:
    from grpc_tools import protoc

    proto, compiled = written(tmp_path, "shop.proto", PROTO), tmp_path / "shop.desc"
    assert protoc.main(["", f"-I{tmp_path}", f"--descriptor_set_out={compiled}", "--include_imports", str(proto)]) == 0
    several = orbitmq("schema", "register", "Shop", proto, code=2)
    assert "shop.Line, shop.Order" in " ".join(several.output.split())
    orbitmq("schema", "register", "Shop", proto, "--message", "Order")
    orbitmq("schema", "register", "Shop", compiled, "--message", "shop.Order", "--fail-if-unchanged", code=10)
    (shown,) = items("schema", "show", "Shop")
    assert shown["message"] == "shop.Order"
    assert shown["text"].splitlines() == [
        "message Order {", "  int64 id = 1;", "  repeated shop.Line lines = 2;", "  string note = 3;", "}",
    ]  # fmt: skip
    reused = written(tmp_path, "shop.proto", PROTO.replace("string note = 3", "string text = 3"))
    refused = orbitmq("schema", "check", "Shop", reused, "--message", "Order", code=7)
    assert "field text reuses number 3, which was note" in " ".join(refused.output.split())


@pytest.mark.parametrize(
    ("name", "content", "more", "text"),
    [
        ("order.txt", "{}", (), "does not say its kind"),
        ("order.json", "no", (), "order.json: "),
        ("order.json", '{"type": "text"}', (), "the type 'text'"),
        ("order.avsc", "{}", (), "no schema of Avro"),
        ("order.proto", "nothing", (), "order.proto"),
        ("order.desc", "nothing", (), "no descriptors"),
        ("order.json", "{}", ("--message", "Order"), "has a name in Protobuf"),
        ("order.json", "{}", ("--kind", "xml"), "no kind xml"),
        ("order.json", "{}", ("--compatibility", "some"), "no compatibility some"),
    ],
)
def test_what_is_no_schema_is_named(tmp_path: Path, name: str, content: str, more: tuple[str, ...], text: str) -> None:
    found = orbitmq("schema", "register", "Wrong", written(tmp_path, name, content), *more, code=2)
    assert text in " ".join(found.output.split())


def test_a_topic_without_schemas_is_named_and_a_similar_one_proposed(cluster: Cluster, tmp_path: Path) -> None:
    orbitmq("schema", "register", "Payments", written(tmp_path, "a.json", {"type": "object"}))
    assert "Payments" in orbitmq("schema", "show", "Payment", code=3).output
    missing = orbitmq("schema", "show", "Payments", "--version", 7, code=3)
    assert "its versions are 1" in " ".join(missing.output.split())


def test_a_schema_of_a_program_is_that_of_a_file(cluster: Cluster, tmp_path: Path) -> None:
    schema = Schema(SchemaKind.JSON, '{"type":"object","title":"Grüße"}')
    with Producer("p", cluster.namesrv_address) as producer:
        producer.register_schema("Greetings", schema)
    file = written(tmp_path, "greetings.json", {"type": "object", "title": "Grüße"})
    orbitmq("schema", "register", "Greetings", file, "--fail-if-unchanged", code=10)


def test_what_cannot_be_read_is_named_and_removed(cluster: Cluster, tmp_path: Path) -> None:
    file = written(tmp_path, "trip.json", {"type": "object"})
    orbitmq("schema", "register", "Trips", file)
    put_pair(cluster.namesrv_address, namespace_of("Trips"), "000002-x", "nonsense")
    for arguments in (("list", "--grep", "Trips"), ("show", "Trips"), ("check", "Trips", file)):
        found = answer("schema", *arguments)
        assert len(found["items"]) == 1
        (warning,) = found["warnings"]
        assert "000002-x, which is kept for topic Trips, cannot be read" in warning
    later = written(tmp_path, "later.json", {"type": "object", "title": "Later"})
    refused = orbitmq("schema", "register", "Trips", later, code=7)
    assert "orbitmq schema remove Trips --unreadable" in " ".join(refused.output.split())
    wrong = orbitmq("schema", "remove", "Trips", "--unreadable", "--version", 1, code=2)
    assert "give --version or --unreadable" in " ".join(wrong.output.split())
    steps = items("schema", "remove", "Trips", "--unreadable", "--yes")
    assert [(one["subject"], one["outcome"]) for one in steps] == [("Trips/000002-x", "confirmed")]
    orbitmq("schema", "remove", "Trips", "--unreadable", code=3)
    orbitmq("schema", "register", "Trips", later)
    put_pair(cluster.namesrv_address, namespace_of("Trips"), "x", "nonsense")
    steps = items("schema", "remove", "Trips", "--yes")
    assert [one["subject"] for one in steps] == ["Trips/1", "Trips/2", "Trips/x"]
    orbitmq("schema", "show", "Trips", code=3)


def test_schemas_of_a_registry_are_registered_compared_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR")  # none is needed
    first = written(tmp_path, "first.avsc", record(("id", "int")))
    second = written(tmp_path, "second.avsc", record(("id", "long")))
    wrong = written(tmp_path, "wrong.avsc", record(("id", "string")))
    with SchemaRegistry(authorization="Bearer hush") as server:
        there = ("--registry", server.url)
        away = orbitmq("schema", "list", *there, code=5)
        assert "does not accept the account" in " ".join(away.output.split())
        monkeypatch.setenv("ORBITMQ_SCHEMA_REGISTRY_SECRET", "hush")
        assert items("schema", "list", *there) == []
        orbitmq("schema", "show", "Orders-value", *there, code=3)
        orbitmq("schema", "check", "Orders-value", first, *there, code=3)
        orbitmq("schema", "register", "Orders-value", first, *there)
        orbitmq("schema", "register", "Orders-value", first, *there, "--fail-if-unchanged", code=10)
        assert items("schema", "check", "Orders-value", second, *there) == [
            {"topic": "Orders-value", "version": 1, "compatible": True, "reasons": []}
        ]
        orbitmq("schema", "register", "Orders-value", second, *there, "--yes")
        for verb in ("check", "register"):
            refused = orbitmq("schema", verb, "Orders-value", wrong, *there, code=7)
            assert "field id is string, and was long" in " ".join(refused.output.split())
        (row,) = items("schema", "list", "--grep", "order", *there)
        assert (row["topic"], row["kind"], row["versions"], row["latest"]) == ("Orders-value", "avro", 2, 2)
        assert (row["schemaId"], row["compatibility"], row["registeredAtMs"]) == ("2", "backward", None)
        shown = items("schema", "show", "Orders-value", *there)
        assert [(one["version"], one["schemaId"]) for one in shown] == [(1, "1"), (2, "2")]
        assert json.loads(shown[1]["text"]) == json.loads(second.read_text())
        missing = orbitmq("schema", "show", "Orders-value", "--version", 7, *there, code=3)
        assert "its versions are 1, 2" in " ".join(missing.output.split())
        mode = orbitmq("schema", "register", "Orders-value", first, *there, "--compatibility", "none", code=2)
        assert "a registry has its own compatibility" in " ".join(mode.output.split())
    unreachable = orbitmq("schema", "list", *there, code=5)
    assert "no schema registry responds" in " ".join(unreachable.output.split())
    assert "no URL of a schema registry" in " ".join(
        orbitmq("schema", "list", "--registry", "x", code=2).output.split()
    )
