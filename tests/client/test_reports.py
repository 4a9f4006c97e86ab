"""What a consumer tells operators names its settings, and none of its secrets."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.client.reports import properties
from orbitmq.client.settings import LitePullSettings, PullSettings, PushSettings, SimpleSettings, complete, options_of
from orbitmq.wire.bodies import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel

MEMBER = ConsumerData(
    group_name="g",
    consume_type=ConsumeType.CONSUME_PASSIVELY,
    message_model=MessageModel.CLUSTERING,
    consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
)


@pytest.mark.parametrize("kind", [PushSettings, LitePullSettings, PullSettings, SimpleSettings])
def test_settings_are_told_and_secrets_are_not(kind: type[Any]) -> None:
    secrets = {name: f"hush-{name}" for name, option in options_of(kind).items() if option.secret}
    assert secrets.keys() >= {"secret_key", "security_token", "tls_key_password"}
    settings = complete(kind, {"access_key": "clerk", "api_timeout_ms": 1234, **secrets})
    told = properties(kind, settings, MEMBER, name_servers=["a:1", "b:2"], workers=3, started_ms=5)
    assert (told["accessKey"], told["mqClientApiTimeout"]) == ("clerk", "1234")
    assert (told["PROP_NAMESERVER_ADDR"], told["PROP_THREADPOOL_CORE_SIZE"]) == ("a:1;b:2;", "3")
    assert "hush" not in str(told)
    assert {"secretKey", "securityToken", "tls.client.keyPassword"} <= told.keys(), "that they are set is no secret"
