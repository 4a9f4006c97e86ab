"""A `.proto` is compiled as data: nothing beside it is run, and its name is no option."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.runtime import protoc
from orbitmq.runtime.protoc import descriptors
from orbitmq.schemas.protobuf import schema_in

PROTO = 'syntax = "proto3"; message Order { int64 id = 1; }'


def test_modules_beside_the_file_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("order.proto").write_text(PROTO)
    for name in ("grpc_tools", "runpy", "google"):
        Path(f"{name}.py").write_text("open('run', 'w').close()")
    assert schema_in(descriptors(Path("order.proto")), "").message == "Order"
    assert not Path("run").exists()


def test_the_name_of_a_file_is_no_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("--version.proto").write_text(PROTO)
    Path("order.proto").write_text(PROTO)
    odd, plain = (schema_in(descriptors(Path(name)), "") for name in ("--version.proto", "order.proto"))
    assert odd.message == plain.message == "Order"
    assert plain == schema_in(descriptors(tmp_path / "order.proto"), ""), "its folder does not count"


def test_a_file_that_takes_too_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protoc, "COMPILE_TIMEOUT_S", 0.001)
    (tmp_path / "order.proto").write_text(PROTO)
    with pytest.raises(ConfigurationError, match="was not compiled within"):
        descriptors(tmp_path / "order.proto")


def test_an_import_cannot_leave_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.proto").write_text(PROTO)
    inside = tmp_path / "inside"
    inside.mkdir()
    for outside in ("../secret.proto", str(tmp_path / "secret.proto")):
        (inside / "bill.proto").write_text(f'syntax = "proto3"; import "{outside}"; message Bill {{ Order o = 1; }}')
        with pytest.raises(ConfigurationError):
            descriptors(inside / "bill.proto")
