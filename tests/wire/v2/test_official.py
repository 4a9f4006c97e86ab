"""Messages, enums and methods as in the official definitions, which are those of the official Python client.

Its generated modules contain the definitions as a literal; they are read, not imported.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, timestamp_pb2

from bench.peers import GRPC
from orbitmq.wire.v2.messages import POOL
from orbitmq.wire.v2.methods import METHODS, PACKAGE, SERVICE, Kind

MODULES = ("definition", "service")

# The current definitions have client properties, which are newer than this version of the client.
ONLY_OURS = {
    "Code.INVALID_CLIENT_PROPERTIES",
    "Settings.client_properties",
    "Settings.ClientPropertiesEntry",
    "Settings.ClientPropertiesEntry()",
    "Settings.ClientPropertiesEntry.key",
    "Settings.ClientPropertiesEntry.value",
}
ONLY_THEIRS: set[str] = set()

Facts = dict[str, object]


@pytest.fixture(scope="module")
def official() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for known in (timestamp_pb2, duration_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    for module in MODULES:
        pool.AddSerializedFile(_serialized((_generated() / f"{module}_pb2.py").read_text(encoding="utf-8")))
    return pool


def _generated() -> Path:
    """The directory of the generated modules, in the environment that `make clients` makes."""
    assert GRPC.problem() is None
    (directory,) = GRPC.python.parents[1].glob("lib/python3*/site-packages/rocketmq/grpc_protocol")
    return directory


def _serialized(source: str) -> bytes:
    """The argument of AddSerializedFile."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    (found,) = (call for call in calls if ast.unparse(call.func).endswith("AddSerializedFile"))
    literal = ast.literal_eval(found.args[0])
    assert isinstance(literal, bytes)
    return literal


def _facts(pool: Any, files: tuple[str, ...]) -> Facts:
    """All that the files say about messages and enums, by path."""
    facts: Facts = {}
    for name in files:
        file = descriptor_pb2.FileDescriptorProto()
        pool.FindFileByName(name).CopyToProto(file)
        assert (file.package, file.syntax) == (PACKAGE, "proto3")
        for message in file.message_type:
            facts |= _message_facts(message, message.name)
        for enum in file.enum_type:
            facts |= _enum_facts(enum, enum.name)
    return facts


def _message_facts(message: Any, path: str) -> Facts:
    facts: Facts = {path: "message", f"{path}()": message.options.map_entry}
    for field in message.field:
        oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None
        facts[f"{path}.{field.name}"] = (
            field.number, field.label, field.type, field.type_name, field.proto3_optional, oneof,
        )  # fmt: skip
    for nested in message.nested_type:
        facts |= _message_facts(nested, f"{path}.{nested.name}")
    for enum in message.enum_type:
        facts |= _enum_facts(enum, f"{path}.{enum.name}")
    return facts


def _enum_facts(enum: Any, path: str) -> Facts:
    return {path: "enum"} | {f"{path}.{value.name}": value.number for value in enum.value}


def test_messages_and_enums_are_the_official_ones(official: descriptor_pool.DescriptorPool) -> None:
    ours = _facts(POOL, ("orbitmq/rocketmq_v2.proto",))
    theirs = _facts(official, tuple(f"{module}.proto" for module in MODULES))
    assert len(theirs) > 300
    assert ours.keys() - theirs.keys() == ONLY_OURS
    assert theirs.keys() - ours.keys() == ONLY_THEIRS
    assert {
        path: (ours[path], theirs[path]) for path in ours.keys() & theirs.keys() if ours[path] != theirs[path]
    } == {}


def test_methods_are_the_official_ones(official: descriptor_pool.DescriptorPool) -> None:
    assert set(_methods(official)) == {
        (
            method.path,
            method.request,
            method.response,
            method.kind is Kind.BIDIRECTIONAL,
            method.kind is not Kind.UNARY,
        )
        for method in METHODS.values()
    }


def _methods(official: Any) -> Iterator[tuple[str, str, str, bool, bool]]:
    service = descriptor_pb2.ServiceDescriptorProto()
    official.FindServiceByName(SERVICE).CopyToProto(service)
    for method in service.method:
        kinds = [text.removeprefix(f".{PACKAGE}.") for text in (method.input_type, method.output_type)]
        yield f"/{SERVICE}/{method.name}", *kinds, method.client_streaming, method.server_streaming


BOTH = """
import sys
sys.path.insert(0, sys.argv[1])
import definition_pb2 as theirs
from orbitmq.wire.v2 import messages as ours
message = ours.Message(topic=ours.Resource(name="Orders"), user_properties={"a": "1"}, body=b"x")
message.system_properties.delivery_attempt = 0
again = theirs.Message.FromString(message.SerializeToString(deterministic=True))
assert again.topic.name == "Orders" and again.system_properties.HasField("delivery_attempt")
assert again.SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True)
"""


def test_the_official_client_can_live_in_the_same_process() -> None:
    command = [sys.executable, "-c", BOTH, str(_generated())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
