"""Numbers of the remoting protocol: response codes, languages, versions. `wire.requests` has the requests."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

VERSION: Final = 407  # ordinal of V4_9_7: clients and tools switch features on by it, so every command carries it
FIRST_VERSION, FIRST_ORDINAL = 4, 213  # V4_0_0; each release takes two numbers
_RELEASES: Final = 100


def version_name(ordinal: int) -> str:
    """`V4_9_7` for 407."""
    major, release = divmod((ordinal - FIRST_ORDINAL) // 2, _RELEASES)
    return f"V{FIRST_VERSION + major}_{release // 10}_{release % 10}"


class SerializeType(IntEnum):
    """First byte of the header-length word of a frame."""

    JSON = 0
    ROCKETMQ = 1


class ResponseCode(IntEnum):
    """How a request ended."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    UPDATE_AND_CREATE_ACL_CONFIG_FAILED = 209
    DELETE_ACL_CONFIG_FAILED = 210
    POLLING_FULL = 209  # of POP consumption; RocketMQ has given the number twice
    POLLING_TIMEOUT = 210  # and this one
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED = 211
    FLOW_CONTROL = 215
    ILLEGAL_OPERATION = 604


LANGUAGES: Final = (
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
)  # the index is the code in binary headers
LANGUAGE_CODES: Final = {name: code for code, name in enumerate(LANGUAGES)}
