"""The messages of apache.rocketmq.v2 as classes of Protobuf's runtime, and the few values that many of them hold.

The table below is the source of the classes. They live in a pool of their own: the official Python client registers the
same names in the default pool, and both may be in one process. A class is made when its name is first imported from
here. Its fields are dynamic, so to a type checker every message is `Any`.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2

from orbitmq.wire.v2.enums import ENUMS, Code, OffsetPolicy
from orbitmq.wire.v2.methods import PACKAGE

# `Name: fields`, a field being `[rep|opt|one(<oneof>)] type name = number`. `rep` repeats, `opt` tells absent from
# default, `map` is from text to text.
TABLE: Final = """
Status: Code code = 1, string message = 2
Resource: string resource_namespace = 1, string name = 2
FilterExpression: FilterType type = 1, string expression = 2
RetryPolicy: int32 max_attempts = 1, one(strategy) ExponentialBackoff exponential_backoff = 2,
    one(strategy) CustomizedBackoff customized_backoff = 3
ExponentialBackoff: Duration initial = 1, Duration max = 2, float multiplier = 3
CustomizedBackoff: rep Duration next = 1
SubscriptionEntry: Resource topic = 1, FilterExpression expression = 2
Address: string host = 1, int32 port = 2
Endpoints: AddressScheme scheme = 1, rep Address addresses = 2
Broker: string name = 1, int32 id = 2, Endpoints endpoints = 3
MessageQueue: Resource topic = 1, int32 id = 2, Permission permission = 3, Broker broker = 4,
    rep MessageType accept_message_types = 5
Assignment: MessageQueue message_queue = 1
Digest: DigestType type = 1, string checksum = 2
DeadLetterQueue: string topic = 1, string message_id = 2
Message: Resource topic = 1, map user_properties = 2, SystemProperties system_properties = 3, bytes body = 4
SystemProperties: opt string tag = 1, rep string keys = 2, string message_id = 3, Digest body_digest = 4,
    Encoding body_encoding = 5, MessageType message_type = 6, Timestamp born_timestamp = 7, string born_host = 8,
    opt Timestamp store_timestamp = 9, string store_host = 10, opt Timestamp delivery_timestamp = 11,
    opt string receipt_handle = 12, int32 queue_id = 13, opt int64 queue_offset = 14,
    opt Duration invisible_duration = 15, opt int32 delivery_attempt = 16, opt string message_group = 17,
    opt string trace_context = 18, opt Duration orphaned_transaction_recovery_duration = 19,
    opt DeadLetterQueue dead_letter_queue = 20, opt string lite_topic = 21, opt int32 priority = 22
UA: Language language = 1, string version = 2, string platform = 3, string hostname = 4
Metric: bool on = 1, opt Endpoints endpoints = 2
Publishing: rep Resource topics = 1, int32 max_body_size = 2, bool validate_message_type = 3
Subscription: opt Resource group = 1, rep SubscriptionEntry subscriptions = 2, opt bool fifo = 3,
    opt int32 receive_batch_size = 4, opt Duration long_polling_timeout = 5, opt int32 lite_subscription_quota = 6,
    opt int32 max_lite_topic_size = 7
Settings: opt ClientType client_type = 1, opt Endpoints access_point = 2, opt RetryPolicy backoff_policy = 3,
    opt Duration request_timeout = 4, one(pub_sub) Publishing publishing = 5,
    one(pub_sub) Subscription subscription = 6, UA user_agent = 7, Metric metric = 8, map client_properties = 9
OffsetOption: one(offset_type) OffsetOption.Policy policy = 1, one(offset_type) int64 offset = 2,
    one(offset_type) int64 tail_n = 3, one(offset_type) int64 timestamp = 4

QueryRouteRequest: Resource topic = 1, Endpoints endpoints = 2
QueryRouteResponse: Status status = 1, rep MessageQueue message_queues = 2
SendMessageRequest: rep Message messages = 1
SendResultEntry: Status status = 1, string message_id = 2, string transaction_id = 3, int64 offset = 4,
    string recall_handle = 5
SendMessageResponse: Status status = 1, rep SendResultEntry entries = 2
QueryAssignmentRequest: Resource topic = 1, Resource group = 2, Endpoints endpoints = 3
QueryAssignmentResponse: Status status = 1, rep Assignment assignments = 2
ReceiveMessageRequest: Resource group = 1, MessageQueue message_queue = 2, FilterExpression filter_expression = 3,
    int32 batch_size = 4, opt Duration invisible_duration = 5, bool auto_renew = 6,
    opt Duration long_polling_timeout = 7, opt string attempt_id = 8
ReceiveMessageResponse: one(content) Status status = 1, one(content) Message message = 2,
    one(content) Timestamp delivery_timestamp = 3
AckMessageEntry: string message_id = 1, string receipt_handle = 2, opt string lite_topic = 3
AckMessageRequest: Resource group = 1, Resource topic = 2, rep AckMessageEntry entries = 3
AckMessageResultEntry: string message_id = 1, string receipt_handle = 2, Status status = 3
AckMessageResponse: Status status = 1, rep AckMessageResultEntry entries = 2
ForwardMessageToDeadLetterQueueRequest: Resource group = 1, Resource topic = 2, string receipt_handle = 3,
    string message_id = 4, int32 delivery_attempt = 5, int32 max_delivery_attempts = 6, opt string lite_topic = 7
ForwardMessageToDeadLetterQueueResponse: Status status = 1
HeartbeatRequest: opt Resource group = 1, ClientType client_type = 2
HeartbeatResponse: Status status = 1
EndTransactionRequest: Resource topic = 1, string message_id = 2, string transaction_id = 3,
    TransactionResolution resolution = 4, TransactionSource source = 5, string trace_context = 6
EndTransactionResponse: Status status = 1
PrintThreadStackTraceCommand: string nonce = 1
ReconnectEndpointsCommand: string nonce = 1
ThreadStackTrace: string nonce = 1, opt string thread_stack_trace = 2
VerifyMessageCommand: string nonce = 1, Message message = 2
VerifyMessageResult: string nonce = 1
RecoverOrphanedTransactionCommand: Message message = 1, string transaction_id = 2
NotifyUnsubscribeLiteCommand: string lite_topic = 1
TelemetryCommand: opt Status status = 1, one(command) Settings settings = 2,
    one(command) ThreadStackTrace thread_stack_trace = 3, one(command) VerifyMessageResult verify_message_result = 4,
    one(command) RecoverOrphanedTransactionCommand recover_orphaned_transaction_command = 5,
    one(command) PrintThreadStackTraceCommand print_thread_stack_trace_command = 6,
    one(command) VerifyMessageCommand verify_message_command = 7,
    one(command) ReconnectEndpointsCommand reconnect_endpoints_command = 8,
    one(command) NotifyUnsubscribeLiteCommand notify_unsubscribe_lite_command = 9
NotifyClientTerminationRequest: opt Resource group = 1
NotifyClientTerminationResponse: Status status = 1
ChangeInvisibleDurationRequest: Resource group = 1, Resource topic = 2, string receipt_handle = 3,
    Duration invisible_duration = 4, string message_id = 5, opt string lite_topic = 6, opt bool suspend = 7
ChangeInvisibleDurationResponse: Status status = 1, string receipt_handle = 2
PullMessageRequest: Resource group = 1, MessageQueue message_queue = 2, int64 offset = 3, int32 batch_size = 4,
    FilterExpression filter_expression = 5, Duration long_polling_timeout = 6
PullMessageResponse: one(content) Status status = 1, one(content) Message message = 2,
    one(content) int64 next_offset = 3
UpdateOffsetRequest: Resource group = 1, MessageQueue message_queue = 2, int64 offset = 3
UpdateOffsetResponse: Status status = 1
GetOffsetRequest: Resource group = 1, MessageQueue message_queue = 2
GetOffsetResponse: Status status = 1, int64 offset = 2
QueryOffsetRequest: MessageQueue message_queue = 1, QueryOffsetPolicy query_offset_policy = 2,
    opt Timestamp timestamp = 3
QueryOffsetResponse: Status status = 1, int64 offset = 2
RecallMessageRequest: Resource topic = 1, string recall_handle = 2
RecallMessageResponse: Status status = 1, string message_id = 2
SyncLiteSubscriptionRequest: LiteSubscriptionAction action = 1, Resource topic = 2, Resource group = 3,
    rep string lite_topic_set = 4, opt int64 version = 5, opt OffsetOption offset_option = 6
SyncLiteSubscriptionResponse: Status status = 1
"""

FIRST_MS: Final = -62_135_596_800_000  # the years 1 to 9999, outside of which clients refuse a Timestamp
LAST_MS: Final = 253_402_300_799_999

_MESSAGE: Final = re.compile(r"^(\w+):(.*(?:\n .*)*)", re.MULTILINE)
_FIELD: Final = re.compile(r"(?:(rep|opt|one)(?:\((\w+)\))? )?([\w.]+) (\w+) = (\d+)")
_Field: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "bool": _Field.TYPE_BOOL,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "float": _Field.TYPE_FLOAT,
}
_KNOWN: Final = (timestamp_pb2, duration_pb2)
_ENUM_NAMES: Final = {kind.__name__ for kind in ENUMS} | {"OffsetOption.Policy"}


def _file() -> Any:
    """The table as Protobuf describes files."""
    file = descriptor_pb2.FileDescriptorProto(name="orbitmq/rocketmq_v2.proto", package=PACKAGE, syntax="proto3")
    file.dependency.extend([module.DESCRIPTOR.name for module in _KNOWN])
    for kind in ENUMS:
        _describe_enum(file.enum_type.add(name=kind.__name__), kind)
    for name, fields in _MESSAGE.findall(TABLE):
        _describe_message(file.message_type.add(name=name), fields)
        if name == "OffsetOption":
            _describe_enum(file.message_type[-1].enum_type.add(name="Policy"), OffsetPolicy)
    return file


def _describe_enum(described: Any, kind: type[IntEnum]) -> None:
    for member in kind:
        described.value.add(name=member.name, number=member.value)


def _describe_message(described: Any, fields: str) -> None:
    oneofs: dict[str, int] = {}
    present = []
    for mark, oneof, kind, name, number in _FIELD.findall(fields):
        field = described.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
        if mark == "rep":
            field.label = _Field.LABEL_REPEATED
        elif mark == "opt":
            present.append(field)
        elif oneof:
            if oneof not in oneofs:
                oneofs[oneof] = len(oneofs)
                described.oneof_decl.add(name=oneof)
            field.oneof_index = oneofs[oneof]
        _describe_type(described, field, kind)
    for field in present:  # a field with presence is the only one of a oneof, which comes after all others
        field.proto3_optional = True
        field.oneof_index = len(described.oneof_decl)
        described.oneof_decl.add(name=f"_{field.name}")


def _describe_type(described: Any, field: Any, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    elif kind == "map":  # a repeated message with a key and a value
        entry = described.nested_type.add(name=f"{field.name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        for number, name in enumerate(("key", "value"), start=1):
            entry.field.add(name=name, number=number, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)
        field.label, field.type = _Field.LABEL_REPEATED, _Field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{described.name}.{entry.name}"
    elif kind in ("Timestamp", "Duration"):
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".google.protobuf.{kind}"
    else:
        field.type = _Field.TYPE_ENUM if kind in _ENUM_NAMES else _Field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"


def _pool() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for module in _KNOWN:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(_file().SerializeToString())
    return pool


POOL: Final[Any] = _pool()


def message_class(name: str) -> Any:
    """The class of a message, by its name in the protocol. KeyError for an unknown name."""
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


_STATUS: Final = message_class("Status")


def __getattr__(name: str) -> Any:
    """A message's class, which is kept for the next import."""
    try:
        made = message_class(name)
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    globals()[name] = made
    return made


def status(code: Code, text: str = "") -> Any:
    """A Status; its text is the name of the code unless one is given."""
    return _STATUS(code=code, message=text or code.name)


def set_time(time: Any, milliseconds: int) -> None:
    """Give a Timestamp or a Duration this many milliseconds, for a Timestamp since the epoch.

    A message may have been stored with any number: one that no Timestamp can hold becomes the nearest that it can.
    """
    known = min(max(milliseconds, FIRST_MS), LAST_MS)
    time.seconds = known // 1000
    time.nanos = known % 1000 * 1_000_000


def milliseconds_of(time: Any) -> int:
    """A Timestamp or a Duration in whole milliseconds; what a peer sent may be far out of range."""
    milliseconds: int = time.seconds * 1000 + time.nanos // 1_000_000
    return milliseconds
