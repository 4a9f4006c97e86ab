"""A registry's schemas are found, registered and refused as it says; what else responds says nothing of a schema."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import SourceCodeInfo
from google.protobuf.timestamp_pb2 import Timestamp

from orbitmq.errors import ConfigurationError, SchemaIllegal, SchemaIncompatible, SchemasAway
from orbitmq.operations import registry as module
from orbitmq.operations.registry import Registry, RegistryOptions, subject_of
from orbitmq.schemas.model import Compatibility, Schema, SchemaKind
from orbitmq.schemas.protobuf import schema_of
from tests.support.certificates import Authority
from tests.support.process import free_port
from tests.support.schema_registry import SchemaRegistry

ID, ITEM = {"name": "id", "type": "long"}, {"name": "item", "type": "string", "default": "book"}


def avro(*fields: dict[str, Any], **more: str) -> Schema:
    return Schema(SchemaKind.AVRO, json.dumps({"type": "record", "name": "Order", **more, "fields": list(fields)}))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SchemaRegistry]:
    monkeypatch.setattr(module, "UNKNOWN_AGAIN_S", 0.0)
    with SchemaRegistry() as running:
        yield running


@asynccontextmanager
async def reached(*urls: str, **options: Any) -> AsyncIterator[Registry]:
    registry = Registry(RegistryOptions(urls, **options))
    try:
        yield registry
    finally:
        await registry.close()


async def test_schemas_are_registered_once_and_found(server: SchemaRegistry) -> None:
    first, second = avro(ID), avro(ID, ITEM)
    async with reached(server.url) as registry:
        assert await registry.find("orders-value", first) is None
        one = await registry.register("orders-value", first)
        assert await registry.register("orders-value", first) == one
        two = await registry.register("orders-value", second)
        assert [(each.number, each.registry_id) for each in (one, two)] == [(1, 1), (2, 2)]
        found = await registry.of_subject("orders-value")
        assert [each.registry_id for each in found.versions] == [1, 2]
        assert found.compatibility is Compatibility.BACKWARD
        assert json.loads(str((await by_id(registry, 2)).text)) == json.loads(second.text)
        assert await registry.subjects() == ["orders-value"]
        assert list((await registry.of_subject("others-value")).versions) == []
    assert [one for one in server.requests if one.startswith("POST") and one.endswith("/versions")] == [
        "POST /subjects/orders-value/versions"
    ] * 2, "what is there is only looked up, which accounts without the right to write may do"


async def by_id(registry: Registry, number: int) -> Schema:
    found = await registry.by_id(number)
    assert isinstance(found, Schema), found
    return found


async def test_the_registry_decides_what_is_compatible(server: SchemaRegistry) -> None:
    wrong = avro({"name": "id", "type": "string"})
    async with reached(server.url) as registry:
        await registry.register("orders-value", avro(ID))
        with pytest.raises(SchemaIncompatible, match=r'subject "orders-value", details: .*field id is string, and was'):
            await registry.register("orders-value", wrong)
        (checked,) = await registry.checked("orders-value", wrong)
        assert (checked.version, checked.compatible) == (1, False)
        assert "field id is string" in checked.reasons[0]
        server.levels["orders-value"] = "NONE"
        await registry.register("orders-value", wrong)
        assert (await registry.of_subject("orders-value")).compatibility is Compatibility.NONE
        server.levels["orders-value"] = "FULL_TRANSITIVE"
        assert [one.version for one in await registry.checked("orders-value", wrong)] == [1, 2]


async def test_a_schema_that_the_registry_does_not_take_is_named(server: SchemaRegistry) -> None:
    server.answer = 422, b'{"error_code": 42201, "message": "Input schema is an invalid Avro schema"}'
    async with reached(server.url) as registry:
        with pytest.raises(SchemaIllegal, match="refuses the schema: Input schema is an invalid Avro schema"):
            await registry.register("orders-value", avro(ID))


async def test_protobuf_and_json_are_registered(server: SchemaRegistry) -> None:
    json_schema = Schema(SchemaKind.JSON, '{"type":"object"}')
    async with reached(server.url) as registry:
        for name, schema in (("a", json_schema), ("b", schema_of(Timestamp.DESCRIPTOR))):
            await registry.register(name, schema)
            (version,) = (await registry.of_subject(name)).versions
            assert version.schema == schema
        with pytest.raises(SchemaIllegal, match=r"shop.Order imports other.proto, which a registry keeps"):
            await registry.register("c", importing())


def importing() -> Schema:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    pool.Add(FileDescriptorProto(name="other.proto", package="shop", syntax="proto3"))  # type: ignore[no-untyped-call]
    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3", dependency=["other.proto"])
    file.message_type.add(name="Order")
    pool.Add(file)  # type: ignore[no-untyped-call]
    return schema_of(pool.FindMessageTypeByName("shop.Order"))  # type: ignore[no-untyped-call]


async def test_an_id_without_a_schema_is_asked_for_twice_and_then_not_for_a_while(server: SchemaRegistry) -> None:
    async with reached(server.url) as registry:
        assert [await registry.by_id(7) for _ in range(3)] == ["which the registry does not have"] * 3
        assert server.requests == ["GET /schemas/ids/7"] * 2, "a replica may not have it yet"
        assert await registry.by_ids([7, 8]) == dict.fromkeys((7, 8), "which the registry does not have")
        assert server.requests == ["GET /schemas/ids/7"] * 2 + ["GET /schemas/ids/8"] * 2
        for number in range(module.MISSING_MAX + 5):
            registry._without(number, "gone")
        assert len(registry._missing) == module.MISSING_MAX
        server.put("damaged", "AVRO", "{}")
        server.put("unknown", "THRIFT", "x")
        registry._missing.clear()
        assert "which cannot be used: no schema of Avro" in str(await registry.by_id(1))
        assert "which cannot be used: its type is THRIFT" in str(await registry.by_id(2))


async def test_schemas_that_name_others_are_joined(server: SchemaRegistry) -> None:
    """`Money` is in `Line` and in `Order`, which has `Line`."""
    space = {"namespace": "shop"}
    money = {"type": "record", "name": "Money", **space, "fields": [{"name": "cents", "type": "long"}]}
    line = {"type": "record", "name": "Line", **space, "fields": [{"name": "price", "type": "Money"}]}
    order = {
        "type": "record", "name": "Order", **space,
        "fields": [
            {"name": "lines", "type": {"type": "array", "items": "shop.Line"}},
            {"name": "total", "type": ["null", "Money"]},
        ],
    }  # fmt: skip
    to_money = {"name": "shop.Money", "subject": "money", "version": 1}
    server.put("money", "AVRO", json.dumps(money))
    server.put("line", "AVRO", json.dumps(line), [to_money])
    number = server.put(
        "order", "AVRO", json.dumps(order), [{"name": "shop.Line", "subject": "line", "version": 1}, to_money]
    )
    from orbitmq.client.typed import avro_codec

    async with reached(server.url) as registry:
        codec = avro_codec((await by_id(registry, number)).text)
    value = {"lines": [{"price": {"cents": 5}}], "total": {"cents": 5}}
    assert codec.decode(codec.encode(value), codec.schema) == value


async def test_schemas_that_name_each_other_end(server: SchemaRegistry) -> None:
    text = json.dumps({"type": "record", "name": "A", "fields": [{"name": "b", "type": "B"}]})
    server.put("a", "AVRO", text, [{"name": "B", "subject": "a", "version": 1}])
    async with reached(server.url) as registry:
        assert "cannot be used" in str(await registry.by_id(1))


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (200, b"<html>"), (200, b"[]"), (404, b"<html>not found</html>"), (404, b'{"error": "Not Found"}'),
        (404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'), (500, b'{"error_code": 50001, "message": "x"}'),
        (302, b""), (200, b"x" * (module.RESPONSE_BYTES_MAX + 1)),
    ],
)  # fmt: skip
async def test_what_no_registry_responds_says_nothing_of_a_schema(
    server: SchemaRegistry, status: int, content: bytes
) -> None:
    server.answer = status, content
    async with reached(server.url) as registry:
        with pytest.raises(SchemasAway):
            await registry.by_id(1)
        with pytest.raises(SchemasAway):
            await registry.register("orders-value", avro(ID))


async def test_a_registry_that_does_not_respond_is_named_and_another_one_used(server: SchemaRegistry) -> None:
    silent = f"http://127.0.0.1:{free_port()}"
    async with reached(silent) as registry:
        with pytest.raises(SchemasAway, match=f"no schema registry responds: {silent}"):
            await registry.subjects()
        with pytest.raises(SchemasAway):
            await registry.by_ids(range(100))
    async with reached(silent, f"{server.url}/") as registry:
        assert await registry.subjects() == []
        assert await registry.subjects() == []


async def test_the_account_is_sent_and_is_in_no_error(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with SchemaRegistry(authorization="Basic dXNlcjpodXNo") as server:
        async with reached(server.url, user="user", secret="hush") as registry:
            assert await registry.subjects() == []
        async with reached(server.url, user="user", secret="hush hush") as registry:
            with pytest.raises(SchemasAway, match="does not accept the account") as refused:
                await registry.subjects()
            assert "hush" not in str(refused.value)
            assert "hush" not in repr(registry._options)
        server.authorization = "Bearer token-2"
        async with reached(server.url, secret_file=str(file)) as registry:
            with pytest.raises(ConfigurationError, match="schema_registry_secret_file"):
                await registry.subjects()
            for token, accepted in (("token-1", False), ("token-2\n", True)):
                file.write_text(token, encoding="utf-8")
                if accepted:
                    assert await registry.subjects() == [], "it is read again"
                else:
                    with pytest.raises(SchemasAway):
                        await registry.subjects()
            file.write_text("hush\nhush", encoding="utf-8")
            with pytest.raises(ConfigurationError, match="no header takes") as refused_token:
                await registry.subjects()
            assert "hush" not in str(refused_token.value)


async def test_its_certificate_is_verified(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("registry")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with SchemaRegistry(tls=context) as server:
        async with reached(server.url, ca_file=str(authority.path)) as registry:
            assert await registry.subjects() == []
        async with reached(server.url) as registry:
            with pytest.raises(SchemasAway, match="certificate"):
                await registry.subjects()
    with pytest.raises(ConfigurationError, match="schema_registry_ca_file"):
        Registry(RegistryOptions(["https://127.0.0.1:1"], ca_file=str(tmp_path / "none")))


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8081", "ftp://a", "http://", "http://a:b", "http://a?x=1", "http://u:hush@a", "http://u:hush/@a"]
)
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        RegistryOptions([url])
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("pattern", "schema", "subject"),
    [
        ("{topic}-value", None, "orders-value"),
        ("{record}", avro(ID, namespace="shop"), "shop.Order"),
        ("{topic}-{record}", schema_of(SourceCodeInfo.DESCRIPTOR), "orders-google.protobuf.SourceCodeInfo"),
        ("{record}", Schema(SchemaKind.JSON, '{"title": "Order"}'), "Order"),
    ],
)
def test_the_subject_is_made_of_the_topic_and_the_record(pattern: str, schema: Schema | None, subject: str) -> None:
    assert subject_of(pattern, "orders", schema) == subject


@pytest.mark.parametrize("schema", [None, Schema(SchemaKind.JSON, "{}")])
def test_a_subject_without_the_name_it_needs_is_refused(schema: Schema | None) -> None:
    with pytest.raises(ConfigurationError, match="schema_registry_subject"):
        subject_of("{record}", "orders", schema)
