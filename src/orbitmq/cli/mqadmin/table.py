"""The commands of RocketMQ's own tool, 4.9.7: names, and the short and long names of their options. Four of them
(`consumer`, `getConsumerStatus`, `resetOffsetByTimeOld`, `DecodeMessageId`) are in its source but cannot be called
there. Commands about topics, and `updateSubGroup`, have the options that 5.3.3 has added, too.

A row is the module of the command, and its options, `letter longName` each: `!` takes no value, `*` is required, of
those with `|` one is required. `-n`, the name servers, and `-h` belong to every command. These are facts of the tool;
its help texts are not copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

# fmt: off
# ruff: noqa: E501
ROWS: dict[str, tuple[str, str]] = {
    "clusterList": ("cluster", "i interval, m moreStats!"),
    "brokerStatus": ("cluster", "b brokerAddr, c clusterName"),
    "getBrokerConfig": ("cluster", "b brokerAddr, c clusterName"),
    "updateBrokerConfig": ("cluster", "b brokerAddr, c clusterName, k key*, v value*"),
    "brokerConsumeStats": ("cluster", "b brokerAddr*, l level, o order, t timeoutMillis"),
    "sendMsgStatus": ("messages", "b brokerName*, c count, s messageSize"),
    "clusterRT": ("messages", "a amount, c cluster, i interval, m machine room, p print log, s size"),
    "cleanExpiredCQ": ("cluster", "b brokerAddr, c cluster"),
    "cleanUnusedTopic": ("cluster", "b brokerAddr, c cluster"),
    "deleteExpiredCommitLog": ("cluster", "b brokerAddr, c cluster"),
    "producer": ("cluster", "b broker*"),
    "wipeWritePerm": ("namesrv", "b brokerName*"),
    "addWritePerm": ("namesrv", "b brokerName*"),
    "getNamesrvConfig": ("namesrv", ""),
    "updateNamesrvConfig": ("namesrv", "k key*, v value*"),
    "updateKvConfig": ("namesrv", "k key*, s namespace*, v value*"),
    "deleteKvConfig": ("namesrv", "k key*, s namespace*"),
    "updateTopic": ("topics", "a attributes, b brokerAddr|, c clusterName|, o order, p perm, r readQueueNums, s hasUnitSub, t topic*, u unit, w writeQueueNums"),
    "deleteTopic": ("topics", "c clusterName*, t topic*"),
    "topicList": ("topics", "c clusterModel!"),
    "topicRoute": ("topics", "l list!, t topic*"),
    "topicStatus": ("topics", "c cluster, t topic*"),
    "topicClusterList": ("topics", "t topic*"),
    "updateTopicPerm": ("topics", "b brokerAddr, c clusterName, p perm*, t topic*"),
    "statsAll": ("topics", "a activeTopic!, t topic"),
    "allocateMQ": ("topics", "i ipList*, t topic*"),
    "updateOrderConf": ("topics", "m method*, t topic*, v orderConf"),
    "consumerProgress": ("groups", "g groupName, s showClientIP"),
    "consumerConnection": ("groups", "b brokerAddr, g consumerGroup*"),
    "producerConnection": ("groups", "g producerGroup*, t topic*"),
    "consumerStatus": ("groups", "b brokerAddr, g consumerGroup*, i clientId, s jstack!"),
    "updateSubGroup": ("groups", "a notifyConsumerIdsChanged, b brokerAddr, c clusterName, d consumeBroadcastEnable, g groupName*, i brokerId, m consumeFromMinEnable, o consumeMessageOrderly, p groupRetryPolicy, q retryQueueNums, r retryMaxTimes, s consumeEnable, w whichBrokerWhenConsumeSlowly"),
    "deleteSubGroup": ("groups", "b brokerAddr, c clusterName, g groupName*, r removeOffset"),
    "getConsumerConfig": ("groups", "g groupName*"),
    "consumer": ("groups", "g consumerGroup*, s jstack!"),
    "startMonitoring": ("groups", ""),
    "resetOffsetByTime": ("offsets", "c cplus!, f force, g group*, s timestamp*, t topic*"),
    "skipAccumulatedMessage": ("offsets", "f force, g group*, t topic*"),
    "resetOffsetByTimeOld": ("offsets", "f force, g group*, s timestamp*, t topic*"),
    "getConsumerStatus": ("offsets", "g group*, i originClientId, t topic*"),
    "cloneGroupOffset": ("offsets", "d destGroup*, o offline, s srcGroup*, t topic*"),
    "queryMsgById": ("messages", "d clientId, g consumerGroup, i msgId*, s sendMessage, u unitName"),
    "queryMsgByUniqueKey": ("messages", "a showAll!, d clientId, g consumerGroup, i msgId*, t topic*"),
    "queryMsgByKey": ("messages", "k msgKey*, t topic*"),
    "queryMsgByOffset": ("messages", "b brokerName*, i queueId*, o offset*, t topic*"),
    "queryMsgTraceById": ("messages", "i msgId*, t traceTopic"),
    "printMsg": ("messages", "b beginTimestamp, c charsetName, d printBody, e endTimestamp, s subExpression, t topic*"),
    "printMsgByQueue": ("messages", "a brokerName*, b beginTimestamp, c charsetName, d printBody, e endTimestamp, f calculate, i queueId*, p print msg, s subExpression, t topic*"),
    "consumeMessage": ("messages", "b brokerName, c MessageNumber, e endTimestamp, g consumerGroup, i queueId, o offset, s beginTimestamp, t topic*"),
    "sendMessage": ("messages", "b broker, c tags, i qid, k key, m msgTraceEnable, p body*, t topic*"),
    "checkMsgSendRT": ("messages", "a amount, s size, t topic*"),
    "DecodeMessageId": ("messages", "i messageId*"),
    "queryCq": ("messages", "b broker, c count, g consumer, i index*, q queue*, t topic*"),
    "updateAclConfig": ("access", "a accessKey*, b brokerAddr|, c clusterName|, g groupPerms, i defaultTopicPerm, m admin, s secretKey*, t topicPerms, u defaultGroupPerm, w whiteRemoteAddress"),
    "deleteAclConfig": ("access", "a accessKey*, b brokerAddr|, c clusterName|"),
    "getAclConfig": ("access", "b brokerAddr|, c clusterName|"),
    "clusterAclConfigVersion": ("access", "b brokerAddr|, c clusterName|"),
    "updateGlobalWhiteAddr": ("access", "b brokerAddr|, c clusterName|, g globalWhiteRemoteAddresses*, p aclFileFullPath"),
    "exportMetadata": ("exports", "b brokerAddr, c clusterName, f filePath, g subscriptionGroup!, s specialTopic!, t topic!"),
    "exportConfigs": ("exports", "c clusterName*, f filePath"),
    "exportMetrics": ("exports", "c clusterName*, f filePath"),
}
CHANGES = frozenset({
    "updateBrokerConfig", "cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog", "wipeWritePerm", "addWritePerm",
    "updateNamesrvConfig", "updateKvConfig", "deleteKvConfig", "updateTopic", "deleteTopic", "updateTopicPerm",
    "updateOrderConf", "updateSubGroup", "deleteSubGroup", "resetOffsetByTime", "skipAccumulatedMessage",
    "resetOffsetByTimeOld", "cloneGroupOffset", "queryMsgById", "queryMsgByUniqueKey", "sendMessage", "checkMsgSendRT",
    "sendMsgStatus", "clusterRT", "updateAclConfig", "deleteAclConfig", "updateGlobalWhiteAddr",
})
ALIASES = {"deleteAccessConfig": "deleteAclConfig", "getAccessConfigSubCommand": "getAclConfig"}
# fmt: on


@dataclass(frozen=True, slots=True)
class Letter:
    """One option."""

    letter: str
    long: str
    takes_value: bool
    required: bool
    alternative: bool
    """One of the options with this mark is required."""


@dataclass(frozen=True)
class Stock:
    """One command."""

    name: str
    module: str
    options: str

    @property
    def changes(self) -> bool:
        """Whether it changes the cluster, sends, or delivers a message to a member: refused in a readonly context."""
        return self.name in CHANGES

    @cached_property
    def letters(self) -> tuple[Letter, ...]:
        return tuple(map(_letter, filter(None, self.options.split(", "))))


def _letter(text: str) -> Letter:
    letter, _, long = text.partition(" ")
    name = long.rstrip("!*|")
    marks = long[len(name) :]
    return Letter(letter, name, "!" not in marks, "*" in marks, "|" in marks)


def command(name: str) -> Stock | None:
    """The command of this name or alias, case-insensitive; None if there is none."""
    names = {one.lower(): one for one in ROWS} | {one.lower(): real for one, real in ALIASES.items()}
    real = names.get(name.lower())
    return None if real is None else Stock(real, *ROWS[real])
