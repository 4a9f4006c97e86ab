"""The request table: every request of the remoting protocol, declared once.

`wire.request` describes the fields of a row and the rooms that apply them. The access rules of RocketMQ 4.9 are kept.
Where it requires only a valid signature although the request reads, changes or deletes another account's data, a row
here requires the permission that the same effect needs in another request; applications have it anyway. Requests about
the whole broker need an administrator, which is also the default.
"""

from __future__ import annotations

from enum import ReprEnum
from typing import Final, Self

from orbitmq.wire.headers import (
    ConsumerSendMsgBackHeader,
    GetConsumerListByGroupHeader,
    GetEarliestMsgStoretimeHeader,
    GetMaxOffsetHeader,
    GetMinOffsetHeader,
    NotifyConsumerIdsChangedHeader,
    PullMessageHeader,
    QueryConsumerOffsetHeader,
    QueryMessageHeader,
    SearchOffsetHeader,
    SendMessageHeader,
    SendMessageV2Header,
    UnregisterClientHeader,
    UpdateConsumerOffsetHeader,
    ViewMessageHeader,
)
from orbitmq.wire.headers_access import (
    DeleteAccountHeader,
    UpdateAccountHeader,
    UpdateGlobalWhiteAddressesHeader,
)
from orbitmq.wire.headers_admin import (
    CreateTopicHeader,
    DeleteSubscriptionGroupHeader,
    DeleteTopicHeader,
    GetBrokerConsumeStatsHeader,
    GetConsumerConnectionListHeader,
    GetConsumeStatsHeader,
    GetProducerConnectionListHeader,
    GetSubscriptionGroupConfigHeader,
    GetTopicConfigHeader,
    GetTopicStatsInfoHeader,
    QueryConsumeQueueHeader,
    QueryConsumeTimeSpanHeader,
    QueryCorrectionOffsetHeader,
    QuerySubscriptionByConsumerHeader,
    QueryTopicConsumeByWhoHeader,
    QueryTopicsByConsumerHeader,
    ViewBrokerStatsDataHeader,
)
from orbitmq.wire.headers_groups import (
    CloneGroupOffsetHeader,
    ConsumeMessageDirectlyHeader,
    GetConsumerRunningInfoHeader,
    GetConsumerStatusFromClientHeader,
    InvokeBrokerToGetConsumerStatusHeader,
    InvokeBrokerToResetOffsetHeader,
    ResetConsumerClientOffsetHeader,
)
from orbitmq.wire.headers_namesrv import (
    AddWritePermOfBrokerHeader,
    DeleteKVConfigHeader,
    DeleteTopicFromNamesrvHeader,
    GetKVConfigHeader,
    GetKVListByNamespaceHeader,
    GetRouteInfoHeader,
    GetTopicsByClusterHeader,
    PutKVConfigHeader,
    QueryDataVersionHeader,
    RegisterBrokerHeader,
    UnregisterBrokerHeader,
    WipeWritePermOfBrokerHeader,
)
from orbitmq.wire.headers_pop import (
    AckMessageHeader,
    ChangeInvisibleTimeHeader,
    InFlightHeader,
    NotificationHeader,
    PeekMessageHeader,
    PollingInfoHeader,
    PopMessageHeader,
)
from orbitmq.wire.headers_reply import (
    PushReplyMessageHeader,
)
from orbitmq.wire.headers_timer import PendingTimersHeader, RecallMessageHeader
from orbitmq.wire.headers_transaction import (
    CheckTransactionStateHeader,
    EndTransactionHeader,
    PendingTransactionsHeader,
    ResumeCheckHalfMessageHeader,
)
from orbitmq.wire.mastership import (
    BrokerMastershipHeader,
    PromoteSlaveHeader,
    SetMaintenanceHeader,
    SwitchMasterHeader,
)
from orbitmq.wire.request import (
    ACCOUNT,
    ANY,
    HEARTBEAT_SIZE_MAX,
    PUB,
    UNSTATED,
    Access,
    Fenced,
    Need,
    Peer,
    Queue,
    Request,
    Resource,
    Slave,
    admin,
    group,
    sent,
    topic,
)

_NOBODY: Final = Peer(0)
_WHOLE: Final = "it concerns the whole broker"
_SAME: Final = "what the group's and topic's own consumers may do"
_READS: Final = "it shows what is in the topic"
_FACTS: Final = "it shows metadata of the topic"
_OURS: Final = "RocketMQ 4.9.7 does not know it"
_WHOLE_BROKER: Final = admin(UNSTATED, _WHOLE)
_OWN_ADMIN: Final = admin("-", _OURS)
_ACCOUNTS: Final = admin(UNSTATED, "whoever can change accounts can do everything")

_SEND_TEXT: Final = "PUB on the topic and on each queue of its multi-dispatch; for a retry topic SUB on its group"
_SUB_TOPIC: Final = "SUB on the topic"
_ANY_TOPIC: Final = "PUB or SUB on the topic"
_SUB_GROUP: Final = "SUB on the group"
_SUB_BOTH: Final = "SUB on the group and on the topic"
_POPPED: Final = Access(_SUB_BOTH, (Need(Resource.POPPED, "topic"),), original="-", reason=_OURS)
_POP: Final = Access(_SUB_BOTH, (group(), topic()), original="-", reason=_OURS)
_SEND_DIFFERS: Final = (
    "RocketMQ looks at the producer group of a send to a retry topic, not at whose topic it is, and not at the queues "
    "that a message enters besides"
)
_SEND_ORIGINAL: Final = "PUB on the topic; for a retry topic SUB on the group that the request names as sender"

_TOPIC_FACTS: Final = Access(_ANY_TOPIC, (topic("topic", ANY),), original=UNSTATED, reason=_FACTS)
_OWN_CONSUMERS: Final = Access(_SUB_BOTH, (group("group"), topic()), original=UNSTATED, reason=_SAME)
_OWN_MEMBERS: Final = Access(_SUB_GROUP, (group(),), original=UNSTATED, reason=_SAME)


class RequestCode(Request, ReprEnum):
    """The codes of 4.9.7, then those of 5.x that orbitmq handles, then its own."""

    def __new__(cls, row: int) -> Self:
        member = int.__new__(cls, row)
        member._value_ = int(row)
        vars(member).update(vars(row))
        return member

    # fmt: off
    SEND_MESSAGE = Request(
        10, "Stores one message; the header in long names, as old clients send it.", SendMessageHeader, has_body=True,
        body_max=None,
        access=Access(_SEND_TEXT, (sent("topic", "properties"),), original=_SEND_ORIGINAL, reason=_SEND_DIFFERS),
        slave=Slave.REFUSES_SEND, fenced=Fenced.AT_MASTER, queue=Queue.SEND, is_send=True, is_straight=True,
        is_vip=True,
    )
    PULL_MESSAGE = Request(
        11, "Reads messages of one queue from an offset; held until one arrives if there is none (long polling).",
        PullMessageHeader,
        body_max=None, access=Access(_SUB_BOTH, (group(), topic())), fenced=Fenced.EVERYWHERE, queue=Queue.PULL,
        is_straight=True, always_has_fields=True,
    )
    QUERY_MESSAGE = Request(
        12, "Finds messages of a topic by one of their keys or by unique id, within a time.", QueryMessageHeader,
        access=Access(_SUB_TOPIC, (topic(),)), fenced=Fenced.EVERYWHERE, is_vip=True,
    )
    QUERY_BROKER_OFFSET = Request(13, served_by=_NOBODY)
    QUERY_CONSUMER_OFFSET = Request(
        14, "Returns how far a group has consumed a queue.", QueryConsumerOffsetHeader,
        access=Access(_SUB_BOTH, (group(), topic()), original=UNSTATED, reason=_SAME), fenced=Fenced.EVERYWHERE,
        is_vip=True,
    )
    UPDATE_CONSUMER_OFFSET = Request(
        15, "Commits how far a group has consumed a queue.", UpdateConsumerOffsetHeader,
        access=Access(_SUB_BOTH, (group(), topic())), fenced=Fenced.EVERYWHERE, is_vip=True,
    )
    UPDATE_AND_CREATE_TOPIC = Request(
        17, "Creates a topic or changes its queues and permission.", CreateTopicHeader,
        unread_fields=("attributes", "force"), slave=Slave.REFUSES_CHANGE, fenced=Fenced.AT_MASTER, is_vip=True,
    )
    GET_ALL_TOPIC_CONFIG = Request(
        21, "Returns the configuration of all topics.", access=_WHOLE_BROKER, fenced=Fenced.AT_MASTER,
    )
    GET_TOPIC_CONFIG_LIST = Request(22, served_by=_NOBODY)
    GET_TOPIC_NAME_LIST = Request(23, served_by=_NOBODY)
    UPDATE_BROKER_CONFIG = Request(
        25, "Changes options of the running broker that may be changed; they are written to its configuration file.",
        has_body=True,
    )
    GET_BROKER_CONFIG = Request(26, "Returns every option of the broker with its value.", access=_WHOLE_BROKER)
    TRIGGER_DELETE_FILES = Request(27, served_by=_NOBODY)
    GET_BROKER_RUNTIME_INFO = Request(
        28, "Returns the broker's runtime metrics: rates, totals, disks, waiting requests.", access=_WHOLE_BROKER,
    )
    SEARCH_OFFSET_BY_TIMESTAMP = Request(
        29, "Returns the offset of a queue that is nearest to a store time.", SearchOffsetHeader, access=_TOPIC_FACTS,
        fenced=Fenced.EVERYWHERE, is_vip=True,
    )
    GET_MAX_OFFSET = Request(
        30, "Returns the offset the next message of a queue will get.", GetMaxOffsetHeader, access=_TOPIC_FACTS,
        fenced=Fenced.EVERYWHERE, is_vip=True,
    )
    GET_MIN_OFFSET = Request(
        31, "Returns the offset of the first message a queue still has.", GetMinOffsetHeader, access=_TOPIC_FACTS,
        fenced=Fenced.EVERYWHERE, is_vip=True,
    )
    GET_EARLIEST_MSG_STORETIME = Request(
        32, "Returns the store time of the first message a queue still has.", GetEarliestMsgStoretimeHeader,
        access=_TOPIC_FACTS, fenced=Fenced.EVERYWHERE, is_vip=True,
    )
    VIEW_MESSAGE_BY_ID = Request(
        33, "Returns one message by its offset message id.", ViewMessageHeader,
        access=Access(
            "SUB on the topic of the message", (Need(Resource.MESSAGE, "offset"),), original=UNSTATED, reason=_READS,
        ),
        is_vip=True,
    )
    HEART_BEAT = Request(
        34, "Registers a client with its producer and consumer groups.", has_body=True, body_max=HEARTBEAT_SIZE_MAX,
        access=Access("SUB on every consumer group and every subscribed topic", (Need(Resource.HEARTBEAT),)),
        queue=Queue.HEARTBEAT,
    )
    UNREGISTER_CLIENT = Request(
        35, "Removes a client from a group.", UnregisterClientHeader,
        access=Access("SUB on the consumer group, if one is named", (group(is_optional=True),)),
    )
    CONSUMER_SEND_MSG_BACK = Request(
        36, "Puts a message that could not be consumed into the group's retry topic.", ConsumerSendMsgBackHeader,
        body_max=None,
        access=Access(
            "SUB on the group and on the topic of the message", (group("group"), Need(Resource.MESSAGE, "offset")),
            original=_SUB_GROUP, reason="the message becomes readable for the group",
        ),
        fenced=Fenced.AT_MASTER, queue=Queue.SEND, is_vip=True,
    )
    END_TRANSACTION = Request(
        37, "Commits or rolls back a transaction: delivers its half message, or drops it.", EndTransactionHeader,
        access=Access(
            "PUB on the topic of the prepared message", (Need(Resource.MESSAGE, "commitLogOffset", PUB),),
            original=UNSTATED, reason="it decides over a message",
        ),
        slave=Slave.REFUSES_END, fenced=Fenced.AT_MASTER, queue=Queue.TRANSACTION,
    )
    GET_CONSUMER_LIST_BY_GROUP = Request(
        38, "Returns the client ids of a consumer group.", GetConsumerListByGroupHeader,
        access=Access(_SUB_GROUP, (group(),)), is_vip=True, always_has_fields=True,
    )
    CHECK_TRANSACTION_STATE = Request(
        39, "Asks a producer for the state of a transaction; the body is the message.", CheckTransactionStateHeader,
        served_by=Peer.CLIENT, has_body=True,
    )
    NOTIFY_CONSUMER_IDS_CHANGED = Request(
        40, "Notifies a consumer that the members of its group have changed.", NotifyConsumerIdsChangedHeader,
        served_by=Peer.CLIENT,
    )
    LOCK_BATCH_MQ = Request(
        41, "Locks queues for one consumer of a group.", has_body=True,
        access=Access(
            "SUB on the group and on the topics of the queues", (Need(Resource.LOCKS),),
            original=UNSTATED, reason="it stops consumers",
        ),
        fenced=Fenced.EVERYWHERE, is_vip=True,
    )
    UNLOCK_BATCH_MQ = Request(
        42, "Releases such locks.", has_body=True,
        access=Access(
            "SUB on the group and on the topics of the queues", (Need(Resource.LOCKS),),
            original=UNSTATED, reason="it breaks an order",
        ),
        is_vip=True,
    )
    GET_ALL_CONSUMER_OFFSET = Request(
        43, "Returns the offsets of all groups.", access=_WHOLE_BROKER, fenced=Fenced.EVERYWHERE,
    )
    GET_ALL_DELAY_OFFSET = Request(
        45, "Returns how far each delay level has been delivered.", access=_WHOLE_BROKER, fenced=Fenced.EVERYWHERE,
    )
    CHECK_CLIENT_CONFIG = Request(
        46, "Checks whether a subscription's filter can be evaluated.", has_body=True, access=ACCOUNT, is_vip=True,
    )
    UPDATE_AND_CREATE_ACL_CONFIG = Request(
        50, "Adds an account of access control or changes one; see [security](../security.md).", UpdateAccountHeader,
        access=_ACCOUNTS,
    )
    DELETE_ACL_CONFIG = Request(51, "Removes an account.", DeleteAccountHeader, access=_ACCOUNTS)
    GET_BROKER_CLUSTER_ACL_INFO = Request(52, "Returns the versions of the access control files.", access=_WHOLE_BROKER)
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG = Request(
        53, "Replaces the white list of one access control file.", UpdateGlobalWhiteAddressesHeader, access=_ACCOUNTS,
    )
    GET_TIMER_CHECK_POINT = Request(
        60, "Returns how far timer messages have been delivered; 5.x slaves.", access=_OWN_ADMIN,
        fenced=Fenced.EVERYWHERE,
    )
    GET_TIMER_METRICS = Request(
        61, "Returns how many timer messages wait for each topic; 5.x slaves.", access=_OWN_ADMIN,
        fenced=Fenced.EVERYWHERE,
    )
    GET_BROKER_CLUSTER_ACL_CONFIG = Request(
        54, "Returns white lists and accounts, with their secrets.",
        access=admin(UNSTATED, "the answer has every secret key"),
    )
    PUT_KV_CONFIG = Request(
        100, "Sets one value of a namespace of the key-value settings.", PutKVConfigHeader, served_by=Peer.NAME_SERVER,
    )
    GET_KV_CONFIG = Request(101, "Returns one value of a namespace.", GetKVConfigHeader, served_by=Peer.NAME_SERVER)
    DELETE_KV_CONFIG = Request(
        102, "Removes one value of a namespace.", DeleteKVConfigHeader, served_by=Peer.NAME_SERVER,
    )
    REGISTER_BROKER = Request(
        103, "Takes a broker's address and topics into the route table; brokers send it every 30 s.",
        RegisterBrokerHeader, served_by=Peer.NAME_SERVER, has_body=True, body_max=None,
    )
    UNREGISTER_BROKER = Request(104, "Removes a broker that stops.", UnregisterBrokerHeader, served_by=Peer.NAME_SERVER)
    GET_ROUTEINFO_BY_TOPIC = Request(
        105, "Returns the queues of a topic and the addresses of their brokers.", GetRouteInfoHeader,
        served_by=Peer.NAME_SERVER,
    )
    GET_BROKER_CLUSTER_INFO = Request(
        106, "Returns every cluster with its brokers and their addresses.", served_by=Peer.NAME_SERVER,
    )
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = Request(
        200, "Creates a consumer group or changes it.", has_body=True, slave=Slave.REFUSES_CHANGE,
        fenced=Fenced.AT_MASTER,
    )
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = Request(
        201, "Returns the configuration of all consumer groups.", access=_WHOLE_BROKER, fenced=Fenced.AT_MASTER,
    )
    GET_TOPIC_STATS_INFO = Request(
        202, "Returns the first and last offset of each queue of a topic, and when it was last written.",
        GetTopicStatsInfoHeader, access=_TOPIC_FACTS,
    )
    GET_CONSUMER_CONNECTION_LIST = Request(
        203,
        "Returns the members of a consumer group and what they subscribe; where they subscribe differently, "
        "`subscriptionsByClient` says how.",
        GetConsumerConnectionListHeader, access=_OWN_MEMBERS,
    )
    GET_PRODUCER_CONNECTION_LIST = Request(
        204, "Returns the members of a producer group.", GetProducerConnectionListHeader,
        access=admin(UNSTATED, "it shows other applications; producer groups are no resource"),
    )
    WIPE_WRITE_PERM_OF_BROKER = Request(
        205, "Takes write permission from all topics of a broker, so that producers leave it.",
        WipeWritePermOfBrokerHeader, served_by=Peer.NAME_SERVER,
    )
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = Request(206, "Returns the names of all topics.", served_by=Peer.NAME_SERVER)
    DELETE_SUBSCRIPTIONGROUP = Request(
        207, "Removes a consumer group.", DeleteSubscriptionGroupHeader, slave=Slave.REFUSES_CHANGE,
        fenced=Fenced.AT_MASTER,
    )
    GET_CONSUME_STATS = Request(
        208, "Returns how far a consumer group is in every queue.", GetConsumeStatsHeader,
        access=Access(
            "SUB on the group, and on the topic if one is named; for what is redelivered, on the topic it was sent to",
            (group(), Need(Resource.POPPED, "topic", is_optional=True)), original=UNSTATED, reason=_SAME,
        ),

    )
    SUSPEND_CONSUMER = Request(209, served_by=_NOBODY)
    RESUME_CONSUMER = Request(210, served_by=_NOBODY)
    RESET_CONSUMER_OFFSET_IN_CONSUMER = Request(211, served_by=_NOBODY)
    RESET_CONSUMER_OFFSET_IN_BROKER = Request(212, served_by=_NOBODY)
    ADJUST_CONSUMER_THREAD_POOL = Request(213, served_by=_NOBODY)
    WHO_CONSUME_THE_MESSAGE = Request(214, served_by=_NOBODY)
    DELETE_TOPIC_IN_BROKER = Request(
        215, "Removes a topic.", DeleteTopicHeader, slave=Slave.REFUSES_CHANGE, fenced=Fenced.AT_MASTER,
    )
    DELETE_TOPIC_IN_NAMESRV = Request(
        216, "Removes a topic from the route table.", DeleteTopicFromNamesrvHeader, served_by=Peer.NAME_SERVER,
    )
    GET_KVLIST_BY_NAMESPACE = Request(
        219, "Returns all values of a namespace.", GetKVListByNamespaceHeader, served_by=Peer.NAME_SERVER,
    )
    RESET_CONSUMER_CLIENT_OFFSET = Request(
        220, "Moves the offsets of a consumer; the body says where to.", ResetConsumerClientOffsetHeader,
        served_by=Peer.CLIENT, has_body=True,
    )
    GET_CONSUMER_STATUS_FROM_CLIENT = Request(
        221, "Returns the offsets a consumer holds.", GetConsumerStatusFromClientHeader, served_by=Peer.CLIENT,
    )
    INVOKE_BROKER_TO_RESET_OFFSET = Request(
        222, "Moves a consumer group to a time, or one queue of it to an offset; notifies the members that are online.",
        InvokeBrokerToResetOffsetHeader, access=_OWN_CONSUMERS, is_exact=True, fenced=Fenced.EVERYWHERE,
    )
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = Request(
        223, "Returns the offsets that the members of a group hold.", InvokeBrokerToGetConsumerStatusHeader,
        access=_OWN_CONSUMERS,
    )
    GET_TOPICS_BY_CLUSTER = Request(
        224, "Returns the topics of one cluster.", GetTopicsByClusterHeader, served_by=Peer.NAME_SERVER,
    )
    QUERY_TOPIC_CONSUME_BY_WHO = Request(
        300, "Returns the groups that subscribe a topic or have offsets for it.", QueryTopicConsumeByWhoHeader,
        access=_TOPIC_FACTS,
    )
    REGISTER_FILTER_SERVER = Request(301, served_by=_NOBODY)
    REGISTER_MESSAGE_FILTER_CLASS = Request(302, served_by=_NOBODY)
    QUERY_CONSUME_TIME_SPAN = Request(
        303, "Returns the store times of each queue of a topic, and the delay of a group.", QueryConsumeTimeSpanHeader,
        access=_OWN_CONSUMERS, is_vip=True,
    )
    GET_SYSTEM_TOPIC_LIST_FROM_NS = Request(
        304, "Returns the topics that carry names of clusters and brokers.", served_by=Peer.NAME_SERVER,
    )
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = Request(
        305, "Returns the names of topics that belong to the system.", access=_WHOLE_BROKER,
    )
    CLEAN_EXPIRED_CONSUMEQUEUE = Request(
        306, "Removes queues none of whose messages is left in the commit log.", access=_WHOLE_BROKER,
    )
    GET_CONSUMER_RUNNING_INFO = Request(
        307, "Returns the running state of one consumer.", GetConsumerRunningInfoHeader,
        served_by=Peer.BROKER | Peer.CLIENT,
        access=_OWN_MEMBERS,
    )
    QUERY_CORRECTION_OFFSET = Request(
        308, "Returns the smallest offset that other groups have in each queue of a topic.",
        QueryCorrectionOffsetHeader,
        access=Access(_SUB_BOTH, (group("compareGroup"), topic()), original=UNSTATED, reason=_SAME),
    )
    CONSUME_MESSAGE_DIRECTLY = Request(
        309, "Hands one stored message to one consumer and returns its result.", ConsumeMessageDirectlyHeader,
        served_by=Peer.BROKER | Peer.CLIENT,
        access=Access(
            "SUB on the group and on the topic of the message", (group(), Need(Resource.MESSAGE_ID, "msgId")),
            original=UNSTATED, reason=_SAME,
        ),

    )
    SEND_MESSAGE_V2 = Request(
        310, "Stores one message; the header in one-letter names.", SendMessageV2Header, has_body=True, body_max=None,
        access=Access(_SEND_TEXT, (sent("b", "i"),), original=_SEND_ORIGINAL, reason=_SEND_DIFFERS),
        slave=Slave.REFUSES_SEND, fenced=Fenced.AT_MASTER, queue=Queue.SEND, is_send=True, is_straight=True,
        is_vip=True,
    )
    GET_UNIT_TOPIC_LIST = Request(311, "Returns the topics that belong to a unit.", served_by=Peer.NAME_SERVER)
    GET_HAS_UNIT_SUB_TOPIC_LIST = Request(312, "Returns the topics a unit subscribes to.", served_by=Peer.NAME_SERVER)
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = Request(
        313, "Returns the topics a unit subscribes to that belong to none.", served_by=Peer.NAME_SERVER,
    )
    CLONE_GROUP_OFFSET = Request(
        314, "Copies the offsets of one consumer group to another.", CloneGroupOffsetHeader,
        access=Access(
            "SUB on both groups, and on the topic if one is named",
            (group("srcGroup"), group("destGroup"), topic(is_optional=True)), original=UNSTATED, reason=_SAME,
        ),
        is_exact=True, fenced=Fenced.EVERYWHERE,
    )
    VIEW_BROKER_STATS_DATA = Request(
        315, "Returns one statistic over the last minute, hour and day.", ViewBrokerStatsDataHeader,
        access=_WHOLE_BROKER,
    )
    CLEAN_UNUSED_TOPIC = Request(316, "Removes queues of topics the broker does not know.", access=_WHOLE_BROKER)
    GET_BROKER_CONSUME_STATS = Request(
        317, "Returns the lag of every group in each of its queues.", GetBrokerConsumeStatsHeader,
        access=_WHOLE_BROKER,
    )
    UPDATE_NAMESRV_CONFIG = Request(
        318, "Changes options of the running name server.", served_by=Peer.NAME_SERVER, has_body=True,
    )
    GET_NAMESRV_CONFIG = Request(319, "Returns the effective options as properties text.", served_by=Peer.NAME_SERVER)
    SEND_BATCH_MESSAGE = Request(
        320, "Stores several messages of one topic at consecutive offsets.", SendMessageV2Header, has_body=True,
        body_max=None, access=Access(_SEND_TEXT, (sent("b", "i"),), original=UNSTATED, reason="a batch is a send"),
        slave=Slave.REFUSES_SEND, fenced=Fenced.AT_MASTER, queue=Queue.SEND, is_send=True, is_straight=True,
        is_vip=True,
    )
    QUERY_CONSUME_QUEUE = Request(
        321, "Returns entries of one queue as they are on disk.", QueryConsumeQueueHeader,
        access=Access(_SUB_TOPIC, (topic(),), original=UNSTATED, reason=_READS),
    )
    QUERY_DATA_VERSION = Request(
        322, "Returns whether a broker's topics have changed since it last registered.", QueryDataVersionHeader,
        served_by=Peer.NAME_SERVER, has_body=True,
    )
    RESUME_CHECK_HALF_MESSAGE = Request(
        323, "Checks a transaction again that was given up.", ResumeCheckHalfMessageHeader,
        access=_WHOLE_BROKER, unread_fields=("topic",), slave=Slave.REFUSES_CHANGE, fenced=Fenced.AT_MASTER,
    )
    SEND_REPLY_MESSAGE = Request(
        324, "Hands a reply to the client that waits for it and stores it; the header in long names.",
        SendMessageHeader, has_body=True, body_max=None, access=ACCOUNT, fenced=Fenced.AT_MASTER, is_send=True,
        is_vip=True,
    )
    SEND_REPLY_MESSAGE_V2 = Request(
        325, "The same; the header in one-letter names.", SendMessageV2Header, has_body=True, body_max=None,
        access=ACCOUNT, fenced=Fenced.AT_MASTER, is_send=True, is_vip=True,
    )
    PUSH_REPLY_MESSAGE_TO_CLIENT = Request(
        326, "Hands a reply to the client that waits for it.", PushReplyMessageHeader, served_by=Peer.CLIENT,
        has_body=True,
    )
    ADD_WRITE_PERM_OF_BROKER = Request(
        327, "Restores write permission for all topics of a broker.", AddWritePermOfBrokerHeader,
        served_by=Peer.NAME_SERVER,
    )
    GET_ALL_PRODUCER_INFO = Request(328, "Returns the online members of all producer groups.", access=_WHOLE_BROKER)
    DELETE_EXPIRED_COMMITLOG = Request(
        329, "Removes expired files of the commit log now, whatever the hour.", access=_WHOLE_BROKER,
    )
    # 5.x clients and tools send these over the remoting protocol
    UPDATE_AND_CREATE_TOPIC_LIST = Request(
        18, "The same for several topics.", has_body=True, body_max=None, access=_OWN_ADMIN, slave=Slave.REFUSES_CHANGE,
        fenced=Fenced.AT_MASTER,
    )
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = Request(
        225, "Creates or changes several consumer groups.", has_body=True, body_max=None, access=_OWN_ADMIN,
        slave=Slave.REFUSES_CHANGE, fenced=Fenced.AT_MASTER,
    )
    QUERY_TOPICS_BY_CONSUMER = Request(
        343, "Returns the topics a group has offsets for.", QueryTopicsByConsumerHeader,
        access=Access(_SUB_GROUP, (group("group"),), original="-", reason=_OURS),
    )
    QUERY_SUBSCRIPTION_BY_CONSUMER = Request(
        345, "Returns what a group subscribes of a topic.", QuerySubscriptionByConsumerHeader,
        access=Access(_SUB_BOTH, (group("group"), topic()), original="-", reason=_OURS),
    )
    GET_TOPIC_CONFIG = Request(
        351, "Returns the configuration of one topic.", GetTopicConfigHeader,
        access=Access(_ANY_TOPIC, (topic("topic", ANY),), original="-", reason=_OURS),
    )
    GET_SUBSCRIPTIONGROUP_CONFIG = Request(
        352, "Returns the configuration of one consumer group.", GetSubscriptionGroupConfigHeader,
        access=Access(_SUB_GROUP, (group("group"),), original="-", reason=_OURS),
    )
    LITE_PULL_MESSAGE = Request(
        361, "`PULL_MESSAGE` of a 5.x client that assigns its queues itself.", PullMessageHeader, body_max=None,
        access=Access(_SUB_BOTH, (group(), topic()), original="-", reason=_OURS), fenced=Fenced.EVERYWHERE,
        queue=Queue.PULL, is_straight=True, always_has_fields=True,
    )
    RECALL_MESSAGE = Request(
        370, "Recalls a message that is to be delivered later; 5.x clients.", RecallMessageHeader,
        access=Access("PUB on the topic", (topic("topic", PUB),), original="-", reason=_OURS),
        slave=Slave.REFUSES_SEND, fenced=Fenced.AT_MASTER, unread_fields=("producerGroup",),
    )
    QUERY_ASSIGNMENT = Request(
        400, "Returns the queues of a member, and how it reads them; 5.x clients.", has_body=True,
        access=Access(_SUB_BOTH, (Need(Resource.ASSIGNMENT),), original="-", reason=_OURS),
    )
    SET_MESSAGE_REQUEST_MODE = Request(
        401, "Sets whether a group pulls the messages of a topic, or has them delivered.", has_body=True,
        access=_OWN_ADMIN, slave=Slave.REFUSES_CHANGE, fenced=Fenced.AT_MASTER,
    )
    GET_ALL_MESSAGE_REQUEST_MODE = Request(
        402, "Returns what `SET_MESSAGE_REQUEST_MODE` has set; 5.x slaves.", access=_OWN_ADMIN, fenced=Fenced.AT_MASTER,
    )
    POP_MESSAGE = Request(
        200050, "Delivers messages, which are redelivered unless they are acknowledged in time; 5.x clients.",
        PopMessageHeader, access=_POP, slave=Slave.REFUSES_CHANGE, fenced=Fenced.AT_MASTER, queue=Queue.PULL,
    )
    ACK_MESSAGE = Request(
        200051, "Acknowledges a message that was delivered.", AckMessageHeader, access=_POPPED,
        slave=Slave.REFUSES_CHANGE, fenced=Fenced.AT_MASTER,
    )
    PEEK_MESSAGE = Request(
        200052, "Returns messages as `POP_MESSAGE` does, without delivering them.", PeekMessageHeader, access=_POP,
        fenced=Fenced.EVERYWHERE, queue=Queue.PULL,
    )
    CHANGE_MESSAGE_INVISIBLETIME = Request(
        200053, "Changes when a delivered message is redelivered.", ChangeInvisibleTimeHeader, access=_POPPED,
        slave=Slave.REFUSES_CHANGE, fenced=Fenced.AT_MASTER,
    )
    NOTIFICATION = Request(
        200054, "Returns whether there are messages to deliver, and waits for some.", NotificationHeader, access=_POP,
        fenced=Fenced.EVERYWHERE,
    )
    POLLING_INFO = Request(
        200055, "Returns how many requests wait for messages to be delivered.", PollingInfoHeader, access=_POP,
    )
    BATCH_ACK_MESSAGE = Request(
        200151, "Acknowledges many messages that were delivered.", has_body=True,
        access=Access("SUB on each group and topic", (Need(Resource.BATCH_ACK),), original="-", reason=_OURS),
        slave=Slave.REFUSES_CHANGE, fenced=Fenced.AT_MASTER,
    )
    # orbitmq's own, beyond the codes of RocketMQ and within the 16 bits that a binary header has for them
    GET_PENDING_TRANSACTIONS = Request(
        30001, "Returns the pending transactions, page by page; specific to orbitmq.",
        PendingTransactionsHeader, access=_OWN_ADMIN,
    )
    PROMOTE_SLAVE = Request(
        30002, "Makes a slave the master of its broker name, or reports why it cannot be; specific to orbitmq.",
        PromoteSlaveHeader, access=_OWN_ADMIN,
    )
    EXCHANGE_MASTERSHIP = Request(
        30003,
        "Exchanges with a broker of the same name who is the master and when it was promoted; specific to orbitmq.",
        BrokerMastershipHeader, access=_OWN_ADMIN,
    )
    GET_IN_FLIGHT = Request(
        30005, "Returns the messages of a group that were delivered and are not acknowledged; specific to orbitmq.",
        InFlightHeader, access=Access("SUB on the group", (group(),), original="-", reason=_OURS),
    )
    GET_PENDING_TIMERS = Request(
        30004, "Returns the messages that wait for their time, the next ones first; specific to orbitmq.",
        PendingTimersHeader, access=_OWN_ADMIN,
    )
    GET_ALL_CONSUMER_ORDER = Request(
        30006, "Returns what all groups that consume in order have in flight, for slaves; specific to orbitmq.",
        access=_OWN_ADMIN, fenced=Fenced.EVERYWHERE,
    )
    SWITCH_MASTER = Request(
        30007, "Has the elected master hand over to another replica; specific to orbitmq.",
        SwitchMasterHeader, access=_OWN_ADMIN,
    )
    SET_MAINTENANCE = Request(
        30008, "Begins or ends maintenance of replicas that elect their master; specific to orbitmq.",
        SetMaintenanceHeader, access=_OWN_ADMIN,
    )
    # fmt: on


def served_by(peer: Peer) -> list[RequestCode]:
    """The requests that such a node serves, by code."""
    return sorted(request for request in RequestCode if peer in request.served_by)


ALWAYS_WITH_FIELDS: Final = frozenset(request for request in RequestCode if request.always_has_fields)
