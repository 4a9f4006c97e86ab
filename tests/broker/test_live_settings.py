"""Options of a running broker: which a tool may change, that a change has its effect, and where it is kept."""

from __future__ import annotations

from pathlib import Path

from orbitmq.broker.broker import Broker
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.registered import RegisteredTopics
from orbitmq.broker.settings import STANDING
from orbitmq.message.config import DataVersion
from orbitmq.runtime.options import read_properties
from orbitmq.store.options import StoreOptions
from orbitmq.wire.command import Command
from orbitmq.wire.headers_admin import GetBrokerConfigResponseHeader
from orbitmq.wire.objects import decode
from orbitmq.wire.registration import decode_registration
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.settings import decode_settings
from tests.support.live import Client, client_of, live, made_broker, running

# A value other than the default for each option that may be changed.
CHANGES = {
    "brokerPermission": "4",
    "archiveGuard": "true",
    "autoCreateTopicMessageType": "FIFO",
    "enableMixedMessageType": "true",
    "archiveGuardTopics": "Orders",
    "autoCreateTopicEnable": "false",
    "autoCreateSubscriptionGroup": "false",
    "longPollingEnable": "false",
    "shortPollingTimeMills": "7",
    "notifyConsumerIdsChangedEnable": "false",
    "deleteWhen": "05;17",
    "fileReservedTime": "1",
    "diskMaxUsedSpaceRatio": "60",
    "cleanFileForciblyEnable": "false",
    "cleanUnreadFileForciblyEnable": "true",
    "maxMsgsNumBatch": "9",
    "defaultQueryMaxNum": "8",
    "traceOn": "false",
    "startAcceptSendRequestTimeStamp": "1",
    "disableConsumeIfConsumerReadSlowly": "true",
    "consumerFallbehindThreshold": "1000",
    "transactionTimeOut": "1",
    "transactionCheckMax": "2",
    "rejectTransactionMessage": "true",
    "transactionCheckInterval": "100",
    "enablePropertyFilter": "true",
    "filterSupportRetry": "true",
    "filterDataCleanTimeSpan": "1",
    "storeReplyMessageEnable": "false",
    "slaveReadEnable": "true",
    "timerMaxDelaySec": "60",
    "recallMessageEnable": "true",
    "timerCongestNumEachSlot": "1000",
}


async def change(client: Client, text: str) -> Command:
    return await client.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())


async def settings_of(client: Client) -> tuple[dict[str, str], DataVersion]:
    answer = await client.ask(RequestCode.GET_BROKER_CONFIG)
    version = answer.header(GetBrokerConfigResponseHeader).version
    return decode_settings(answer.body), decode(DataVersion, version)


def changeable() -> set[str]:
    declared = {**BrokerOptions.table(), **StoreOptions.table()}
    return {key for key, (_, option) in declared.items() if option.changeable}


async def test_every_option_is_told_with_its_value(tmp_path: Path) -> None:
    async with live(tmp_path, brokerName="b") as client:
        pairs, version = await settings_of(client)
        assert set(pairs) == {*BrokerOptions.table(), *StoreOptions.table(), *STANDING, "useTLS"}
        assert (pairs["brokerName"], pairs["fileReservedTime"], version.counter) == ("b", "72", 0)


async def test_what_may_be_changed_is_changed_and_told(tmp_path: Path) -> None:
    assert changeable() == set(CHANGES)
    async with live(tmp_path) as client:
        for number, (key, value) in enumerate(CHANGES.items(), 1):
            assert (await change(client, f"{key}={value}\n")).code == 0
            pairs, version = await settings_of(client)
            assert (pairs[key], version.counter) == (value, number)


async def test_other_options_are_refused_with_a_remedy(tmp_path: Path) -> None:
    """Paths, identity and addresses above all: a peer on the network must not choose them."""
    fixed = {*BrokerOptions.table(), *StoreOptions.table(), *STANDING, "useTLS"} - changeable()
    assert {"storePathRootDir", "storePathCommitLog", "brokerName", "brokerIP1", "namesrvAddr", "listenPort"} < fixed
    async with live(tmp_path) as client:
        before = await settings_of(client)
        for key in sorted(fixed):
            answer = await change(client, f"fileReservedTime=1\n{key}=1\n")
            assert answer.code == 16, key
            assert f"option {key} " in (answer.remark or "")
            assert "configuration file" in (answer.remark or "")
        assert await settings_of(client) == before


async def test_a_value_that_is_not_allowed_changes_nothing(tmp_path: Path) -> None:
    refused = (
        "brokerPermission=8", "brokerPermission=x", "fileReservedTime=-1", "fileReservedTime=", "deleteWhen=soon",
        "autoCreateTopicEnable=maybe", "shortPollingTimeMills=1e3", "maxMsgsNumBatch=1000000000",
        "deleteWhen=04\\nstorePathRootDir=/tmp/elsewhere",
    )  # fmt: skip
    async with live(tmp_path) as client:
        before = await settings_of(client)
        for text in refused:
            answer = await change(client, f"longPollingEnable=false\n{text}\n")
            assert answer.code == 1, text
            assert text.partition("=")[0] in (answer.remark or "")
        assert await settings_of(client) == before


async def test_keys_that_orbitmq_does_not_have_are_ignored(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        before = await settings_of(client)
        assert (await change(client, "flushConsumerOffsetHistoryInterval=60001\nnonsense=1\n")).code == 0
        assert await settings_of(client) == before


async def test_a_change_is_in_the_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("# mine\nbrokerName = b\nfileReservedTime=48\n\nlistenPort=0\n")
    broker = broker_of(tmp_path, file)
    async with running(broker), client_of(broker) as client:
        assert (await change(client, "fileReservedTime=12\nbrokerPermission=4\n")).code == 0
        assert (await change(client, "brokerPermission=6\n")).code == 0
    assert file.read_text() == "# mine\nbrokerName = b\nfileReservedTime=12\n\nlistenPort=0\nbrokerPermission=6\n"
    assert "brokerPermission=4" in file.with_name("broker.conf.bak").read_text()
    assert broker_of(tmp_path, file).store.options.file_reserved_time_hours == 12


def broker_of(directory: Path, file: Path) -> Broker:
    pairs = {"storePathRootDir": str(directory / "store"), **read_properties(file)}
    return Broker(BrokerOptions.parse(pairs), StoreOptions.parse(pairs), configuration=file)


async def test_a_change_that_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=b\nlistenPort=0\n")
    broker = broker_of(tmp_path, file)
    async with running(broker), client_of(broker) as client:
        file.with_name("broker.conf.tmp").mkdir()  # in the way of the new file
        answer = await change(client, "fileReservedTime=12\n")
        assert (answer.code, broker.store.options.file_reserved_time_hours) == (1, 72)
        assert "nothing is changed" in (answer.remark or "")


# ------------------------------------------------------------------------------------------------------------- effects


async def test_the_permission_of_the_broker(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await client.send("T")
        version = broker.topics.version
        await change(client, "brokerPermission=2")
        assert (await client.pull("T")).code == 16
        assert broker.topics.version.counter == version.counter + 1, "name servers must take the table as news"
        assert await registered_permissions(broker) == {2}
        await change(client, "brokerPermission=6")
        assert (await client.pull("T")).code == 0


async def registered_permissions(broker: Broker) -> set[int]:
    registration = decode_registration(await RegisteredTopics(broker.topics, broker.options).body(None))
    return {config.perm for config in registration.topic_table.topics.values()}


async def test_topics_and_groups_made_by_their_first_use(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await change(client, "autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false")
        assert (await client.send("T")).code == 17
        assert (await client.pull("DefaultCluster")).code == 26
        await change(client, "autoCreateTopicEnable=true\nautoCreateSubscriptionGroup=true")
        assert (await client.send("T")).code == 0
        assert (await client.pull("T")).code == 0


async def test_the_hours_of_cleaning_and_what_expires(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await change(client, "deleteWhen=05;17\nfileReservedTime=1\ndiskMaxUsedSpaceRatio=60")
        rules = broker.store._cleaner._rules
        assert (rules.hours, rules.reserved_ms, rules.full_ratio) == ({5, 17}, 3_600_000, 0.6)


async def test_what_a_query_may_find(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        for _ in range(5):
            await client.send("T", properties={"KEYS": "k"})
        for count in (2, 4):
            await change(client, f"maxMsgsNumBatch={count}")
            assert len(broker.store.query("T", "k", 64, 0, (1 << 63) - 1).buffers) == count


async def test_what_senders_are_told(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await change(client, "traceOn=false")
        assert ((await client.send("T")).ext or {})["TRACE_ON"] == "false"
        await change(client, "traceOn=true\nstartAcceptSendRequestTimeStamp=9999999999999")
        refused = await client.send("T")
        assert (refused.code, (refused.ext or {})["TRACE_ON"]) == (1, "true")
        await change(client, "startAcceptSendRequestTimeStamp=0")
        assert (await client.send("T")).code == 0
        await change(client, "rejectTransactionMessage=true")
        assert (await client.send("T", properties={"TRAN_MSG": "true", "PGROUP": "p"})).code == 16
