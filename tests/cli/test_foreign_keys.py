"""Every key RocketMQ 4.9.7 can read is either an option with an effect here or a named one without.

rocketmq-keys.txt lists the properties of RocketMQ's five configuration classes (broker, store, name server, and the
server and client side of its remoting), read off their setters by reflection.
"""

from __future__ import annotations

from pathlib import Path

from orbitmq.broker.options import BrokerOptions
from orbitmq.cli.foreign_keys import FIXED, WITHOUT_EFFECT
from orbitmq.namesrv.options import NamesrvOptions
from orbitmq.net.connection_options import ConnectionOptions
from orbitmq.net.tls_options import TlsOptions
from orbitmq.store.options import StoreOptions

ROCKETMQ_KEYS = set(Path(__file__).with_name("rocketmq-keys.txt").read_text().split())
OURS = {
    "aclFile",
    "archiveGuard",
    "archiveGuardGroup",
    "archiveGuardTopics",
    "autoCreateTopicMessageType",
    "autoCreatedGroupsMax",
    "autoCreatedTopicsMax",
    "bindAddress",
    "cleanUnreadFileForciblyEnable",
    "consumerOffsetsMax",
    "fastListenPort",
    "groupsMax",
    "haCopyWholeLog",
    "haSlaveAddresses",
    "enableMixedMessageType",  # five of RocketMQ 5
    "recallMessageEnable",
    "timerCongestNumEachSlot",
    "timerMaxDelaySec",
    "timerWheelEnable",
    "rocketmq.broker.diskSpaceCleanForciblyRatio",  # RocketMQ reads these from the system properties of its JVM
    "rocketmq.broker.diskSpaceWarningLevelRatio",
    "rocketmq.broker.multiPathSplitter",
    "rocketmq.broker.rebalance.lockMaxLiveTime",
    "topicsMax",
}

TLS = {key for key in TlsOptions.table() if key.startswith("tls.")}  # system properties, too, or in a file of their own
OURS |= TLS | ConnectionOptions.table().keys()
OURS |= {"minInSyncReplicas"}  # of RocketMQ 5
OURS |= {key for key in BrokerOptions.table() if key.startswith("agreement")}
OURS |= {"grpcServerPort", "maxDelayTimeMills"}  # of RocketMQ's proxy, whose work the broker does here

BROKER = BrokerOptions.table().keys() | StoreOptions.table().keys() | TlsOptions.table().keys()
BROKER |= ConnectionOptions.table().keys()
NAMESRV = NamesrvOptions.table().keys()


def test_every_key_of_rocketmq_is_known() -> None:
    assert BROKER | NAMESRV | WITHOUT_EFFECT.keys() | FIXED.keys() >= ROCKETMQ_KEYS


def test_no_key_is_made_up() -> None:
    assert BROKER | NAMESRV | WITHOUT_EFFECT.keys() | FIXED.keys() <= ROCKETMQ_KEYS | OURS


def test_a_key_with_an_effect_is_not_said_to_have_none() -> None:
    assert not BROKER & (WITHOUT_EFFECT.keys() | FIXED.keys())
    assert not WITHOUT_EFFECT.keys() & FIXED.keys()
