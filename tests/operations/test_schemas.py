"""Name servers keep the schemas of topics: none is lost, each is compared, and one that lacks some gets them."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orbitmq.errors import ConnectError, SchemaIllegal, SchemaIncompatible
from orbitmq.net.remoting import Remoting
from orbitmq.operations import schemas
from orbitmq.operations.kv import kv_table, put_kv
from orbitmq.operations.schemas import TOPICS, SchemaStore, claims_of, namespace_of
from orbitmq.schemas.compatibility import refusals
from orbitmq.schemas.model import Compatibility, Schema, SchemaKind, SchemaVersion, encode_version
from tests.support.loops import JumpingLoop, run
from tests.support.orbit_process import OrbitNameServer
from tests.support.process import free_port


def schema(**types: str) -> Schema:
    """An object; a name that ends with `_` is of a required field."""
    return Schema(
        SchemaKind.JSON,
        json.dumps(
            {
                "type": "object",
                "properties": {name.rstrip("_"): {"type": kind} for name, kind in types.items()},
                "required": [name.rstrip("_") for name in types if name.endswith("_")],
            }
        ),
    )


def name_server_of(folder: Path, port: int | None = None) -> OrbitNameServer:
    return OrbitNameServer(port=port, kvConfigPath=folder / "kvConfig.json")


@asynccontextmanager
async def store(*name_servers: str) -> AsyncIterator[SchemaStore]:
    remoting = Remoting()
    try:
        yield SchemaStore(remoting, name_servers)
    finally:
        await remoting.close()


async def test_versions_survive_a_restart_and_are_counted(tmp_path: Path) -> None:
    with name_server_of(tmp_path) as name_server:
        address = f"127.0.0.1:{name_server.port}"
        async with store(address) as at:
            first = await at.register("Orders", schema(id_="integer"), 1000)
            again = await at.register("Orders", schema(id_="integer"), 2000)
            second = await at.register("Orders", schema(id_="integer", note="string"), 3000)
            assert (first.number, second.number) == (1, 2)
            assert again == first, "nothing is registered twice"
            name_server.restart()
        async with store(address) as at:
            found = await at.of_topic("Orders")
        assert list(found.versions) == [first, second]
        assert found.by_id(first.schema.id) == first
        assert found.compatibility is Compatibility.BACKWARD


async def test_an_incompatible_schema_is_refused_with_the_field_and_the_rule(tmp_path: Path) -> None:
    with name_server_of(tmp_path) as name_server:
        async with store(f"127.0.0.1:{name_server.port}") as at:
            await at.register("Orders", schema(id_="integer"), 0)
            with pytest.raises(SchemaIncompatible) as caught:
                await at.register("Orders", schema(id_="string", note_="string"), 0)
            assert str(caught.value) == (
                "the schema is not backward compatible with those of topic Orders: "
                "version 1: field note is required, and is new; version 1: field id is string, and was integer"
            )
            assert len((await at.of_topic("Orders")).versions) == 1
            changed = await at.register("Orders", schema(id_="string"), 0, compatibility=Compatibility.NONE)
            assert changed.number == 2
            assert await at.topics() == {"Orders": Compatibility.NONE}, "it is kept for later ones"


async def test_programs_that_register_at_the_same_time_lose_no_version(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(8)]
    with name_server_of(tmp_path) as name_server:
        async with store(f"127.0.0.1:{name_server.port}") as at:
            registered = await asyncio.gather(
                *(at.register("Orders", schema(id_="integer", **{name: "string"}), 0) for name in names)
            )
            found = await at.of_topic("Orders")
    assert sorted(one.number for one in registered) == list(range(1, 9)), "each has a number of its own"
    assert sorted(found.versions, key=lambda one: one.number) == sorted(registered, key=lambda one: one.number)


async def test_of_two_programs_with_schemas_that_exclude_each_other_one_is_refused(tmp_path: Path) -> None:
    with name_server_of(tmp_path) as name_server:
        async with store(f"127.0.0.1:{name_server.port}") as at:
            for number in range(5):
                results = await asyncio.gather(
                    at.register(f"T{number}", schema(id_="integer"), 0),
                    at.register(f"T{number}", schema(id_="string"), 0),
                    return_exceptions=True,
                )
                assert {type(one) for one in results} == {SchemaVersion, SchemaIncompatible}
                assert len((await at.of_topic(f"T{number}")).versions) == 1


class Settings:
    """The key-value settings of two name servers, whose requests take any time, and meet in any order."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.tables: dict[tuple[str, str], dict[str, str]] = {}

    async def _pass(self) -> None:
        await asyncio.sleep(self._chance.choice((0.0, 0.001, 0.01)))

    async def table(self, _remoting: Any, address: str, namespace: str, **_: Any) -> dict[str, str]:
        await self._pass()
        found = dict(self.tables.get((address, namespace), {}))
        await self._pass()
        return found

    async def put(self, _remoting: Any, address: str, namespace: str, key: str, value: str, **_: Any) -> None:
        await self._pass()
        self.tables.setdefault((address, namespace), {})[key] = value
        await self._pass()

    async def delete(self, _remoting: Any, address: str, namespace: str, key: str, **_: Any) -> None:
        await self._pass()
        self.tables.get((address, namespace), {}).pop(key, None)
        await self._pass()


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Settings]:
    def made(seed: int) -> Settings:
        found = Settings(seed)
        monkeypatch.setattr(schemas, "kv_table", found.table)
        monkeypatch.setattr(schemas, "put_kv", found.put)
        monkeypatch.setattr(schemas, "delete_kv", found.delete)
        return found

    return made


ONE, ANOTHER, THIRD = schema(id_="integer"), schema(id_="string"), schema(id_="boolean")


@pytest.mark.parametrize(
    "wanted",
    [(ONE, ONE, ONE), (ONE, ONE, ANOTHER), (ONE, ANOTHER, THIRD), (ONE, ANOTHER, schema(id_="integer", note="string"))],
    ids=["same", "two-same", "none-same", "two-compatible"],
)
def test_three_programs_at_once_get_versions_that_stay_and_were_compared(
    settings: Callable[[int], Settings], wanted: Sequence[Schema]
) -> None:
    """A version that one of them has been given is kept, and each pair that is kept was compared."""

    async def program(number: int, schema: Schema) -> object:
        await asyncio.sleep(number * 0.002)
        at = SchemaStore(Remoting(), ("a:1", "b:1"))
        try:
            return await at.register("Orders", schema, 0)
        except SchemaIncompatible as error:
            return error

    async def main() -> None:
        results = await asyncio.gather(*(program(*one) for one in enumerate(wanted)))
        kept = list((await SchemaStore(Remoting(), ("a:1", "b:1")).of_topic("Orders")).versions)
        given = [one for one in results if isinstance(one, SchemaVersion)]
        assert all(one in kept for one in given), (given, kept)
        assert {one.schema for one in kept} == {one.schema for one in given}
        assert [one.number for one in kept] == list(range(1, len(kept) + 1))
        for place, one in enumerate(kept):
            assert not refusals(one.schema, kept[:place], Compatibility.BACKWARD)
        refused = [one for one, result in zip(wanted, results, strict=True) if not isinstance(result, SchemaVersion)]
        for one in refused:
            assert refusals(one, kept, Compatibility.BACKWARD), "by what is there, not by what was taken back"

    for seed in range(40):
        settings(seed)
        run(main(), JumpingLoop)


def test_the_claim_of_a_program_that_ended_holds_others_up_for_a_while_only(
    settings: Callable[[int], Settings],
) -> None:
    async def main() -> None:
        await kv.put(None, "a:1", claims_of("Orders"), "0" * 32, "0")
        at = SchemaStore(Remoting(), ("a:1", "b:1"))
        registered = await asyncio.gather(at.register("Orders", ONE, 0), at.register("Orders", ONE, 0))
        assert [one.number for one in registered] == [1, 1]
        assert schemas.ABANDONED_S <= asyncio.get_running_loop().time() < schemas.WAIT_MAX_S
        assert not any(kv.tables[key] for key in kv.tables if key[1] == claims_of("Orders"))

    kv = settings(1)
    run(main(), JumpingLoop)


def test_a_registration_that_others_hold_up_says_what_to_do(settings: Callable[[int], Settings]) -> None:
    async def others() -> None:
        number = 0
        while True:
            await kv.put(None, "a:1", claims_of("Orders"), "0" * 32, str(number := number + 1))
            await asyncio.sleep(1)

    async def main() -> None:
        busy = asyncio.create_task(others())
        await asyncio.sleep(0.5)
        with pytest.raises(SchemaIllegal, match="for 60 s; try again"):
            await SchemaStore(Remoting(), ("a:1", "b:1")).register("Orders", ONE, 0)
        busy.cancel()

    kv = settings(1)
    run(main(), JumpingLoop)


async def test_every_name_server_must_respond_for_a_change_and_one_for_a_look_up(tmp_path: Path) -> None:
    port, missing = free_port(), schema(id_="integer")
    with name_server_of(tmp_path / "first") as first:
        addresses = f"127.0.0.1:{first.port}", f"127.0.0.1:{port}"
        async with store(*addresses) as at, store(addresses[0]) as alone:
            known = await alone.register("Orders", missing, 0)
            with pytest.raises(ConnectError, match="every name server"):
                await at.register("Orders", schema(id_="integer", note="string"), 0)
            assert list((await at.of_topic("Orders")).versions) == [known]
            with name_server_of(tmp_path / "second", port):
                assert list((await at.of_topic("Orders")).versions) == [known], "one of them has it"
                assert await at.register("Orders", missing, 0) == known
                async with store(addresses[1]) as new:
                    assert list((await new.of_topic("Orders")).versions) == [known], "what it lacked was put there"
                    assert await new.topics() == {"Orders": Compatibility.BACKWARD}


async def test_versions_are_removed_and_the_topic_with_the_last_one(tmp_path: Path) -> None:
    with name_server_of(tmp_path) as name_server:
        async with store(f"127.0.0.1:{name_server.port}") as at:
            for number in range(3):
                await at.register("Orders", schema(id_="integer", **{f"n{number}": "string"}), 0)
            assert await at.remove("Orders", 2) == 1
            assert [one.number for one in (await at.of_topic("Orders")).versions] == [1, 3]
            assert await at.remove("Orders", 2) == 0
            assert await at.topics() == {"Orders": Compatibility.BACKWARD}
            assert await at.remove("Orders") == 2
            assert await at.topics() == {}


async def test_the_number_of_versions_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "VERSIONS_MAX", 1)
    with name_server_of(tmp_path) as name_server:
        async with store(f"127.0.0.1:{name_server.port}") as at:
            await at.register("Orders", schema(a="integer"), 0)
            with pytest.raises(SchemaIllegal, match="1 are allowed"):
                await at.register("Orders", schema(b="integer"), 0)


@pytest.mark.parametrize(
    "damaged",
    ["nonsense", "{}", '{"number":2,"schema":{"kind":"thrift","text":"x","message":""},"registered_at_ms":0}'],
)
async def test_a_pair_that_is_no_version_hinders_only_what_needs_it(tmp_path: Path, damaged: str) -> None:
    with name_server_of(tmp_path) as name_server:
        address = f"127.0.0.1:{name_server.port}"
        async with store(address) as at:
            first = await at.register("Orders", schema(id_="integer"), 0)
            await put_kv(at._remoting, address, namespace_of("Orders"), "000002-x", damaged)
            found = await at.of_topic("Orders")
            assert list(found.versions) == [first]
            assert list(found.unreadable) == ["000002-x"]
            assert await at.register("Orders", first.schema, 0) == first, "programs with a known schema start"
            later = schema(id_="integer", note="string")
            with pytest.raises(SchemaIllegal, match=r"with 000002-x, .* `orbitmq schema remove Orders --unreadable`"):
                await at.register("Orders", later, 0)
            unchecked = await at.register("Orders", later, 0, compatibility=Compatibility.NONE)
            assert unchecked.number == 3, "its number is not given to another"
            assert await at.remove_unreadable("Orders", "another") == 0
            assert await at.remove_unreadable("Orders", "000002-x") == 1
            assert (await at.of_topic("Orders")).unreadable == {}
            await put_kv(at._remoting, address, namespace_of("Orders"), "000002-x", damaged)
            assert await at.remove("Orders", 1) == 1
            assert await at.remove("Orders") == 2, "with all that is kept"
            assert await at.topics() == {}


async def test_a_pair_that_is_damaged_at_one_name_server_is_read_from_another_and_put_right(tmp_path: Path) -> None:
    with name_server_of(tmp_path / "first") as first, name_server_of(tmp_path / "second") as second:
        addresses = f"127.0.0.1:{first.port}", f"127.0.0.1:{second.port}"
        async with store(*addresses) as at:
            known = await at.register("Orders", schema(id_="integer"), 0)
            space = namespace_of("Orders")
            (key,) = await kv_table(at._remoting, addresses[0], space)
            for address in addresses:
                text = (await kv_table(at._remoting, address, space))[key]
                await put_kv(at._remoting, address, space, key, "nonsense")
                found = await at.of_topic("Orders")
                assert (list(found.versions), found.unreadable) == ([known], {})
                assert await at.register("Orders", known.schema, 0) == known
                assert (await kv_table(at._remoting, address, space))[key] == text


async def test_a_version_that_cannot_be_compared_is_named(tmp_path: Path) -> None:
    with name_server_of(tmp_path) as name_server:
        address = f"127.0.0.1:{name_server.port}"
        async with store(address) as at:
            wrong = SchemaVersion(4, Schema(SchemaKind.JSON, "no"), 0)
            await put_kv(at._remoting, address, namespace_of("Orders"), "000004-x", encode_version(wrong))
            with pytest.raises(SchemaIllegal, match="version 4 cannot be compared: no JSON Schema"):
                await at.register("Orders", schema(id_="integer"), 0)
            assert await at.remove("Orders", 4) == 1


async def test_a_version_of_a_program_that_ended_meanwhile_counts(tmp_path: Path) -> None:
    """It has written its version, and not read what others have."""
    with name_server_of(tmp_path) as name_server:
        address = f"127.0.0.1:{name_server.port}"
        async with store(address) as at:
            left = SchemaVersion(1, schema(id_="integer"), 0)
            await put_kv(at._remoting, address, namespace_of("Orders"), "000001-left", encode_version(left))
            with pytest.raises(SchemaIncompatible):
                await at.register("Orders", schema(id_="string"), 0)
            assert (await at.register("Orders", left.schema, 0)) == left
            assert await kv_table(at._remoting, address, TOPICS) == {"Orders": "backward"}
