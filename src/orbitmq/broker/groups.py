"""The broker's consumer groups and their rules, saved to config/subscriptionGroup.json at every change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from orbitmq.broker.light_queues import light_group
from orbitmq.broker.options import BrokerOptions
from orbitmq.errors import MessageIllegal, RequestRejected
from orbitmq.message.config import DataVersion, SubscriptionGroup
from orbitmq.message.topics import (
    FILTER_SERVER_GROUP,
    ONS_API_OWNER_GROUP,
    ONS_API_PERMISSION_GROUP,
    ONS_API_PULL_GROUP,
    ONS_HTTP_PROXY_GROUP,
    SELF_TEST_CONSUMER_GROUP,
    TOOLS_CONSUMER_GROUP,
    check_retry_topic,
    is_lmq,
    is_system_group,
)
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.refusals import Limit, Refusals
from orbitmq.runtime.saved import SavedFile
from orbitmq.runtime.turns import in_turns
from orbitmq.wire.bodies import SubscriptionGroupTable
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.objects import decode
from orbitmq.wire.table_texts import TableText, TableTexts

_log = logging.getLogger(__name__)

BUILT_IN = (
    TOOLS_CONSUMER_GROUP,
    FILTER_SERVER_GROUP,
    SELF_TEST_CONSUMER_GROUP,
    ONS_HTTP_PROXY_GROUP,
    ONS_API_PULL_GROUP,
    ONS_API_PERMISSION_GROUP,
    ONS_API_OWNER_GROUP,
)
TEXT_SIZE_MAX = 15 << 20  # all of them go to slaves and tools in one frame of 16 MiB
AUTO_CREATED_SIZE_MAX = 12 << 20  # clients that invent names leave room for administrators


class Groups:
    """Group name -> configuration."""

    def __init__(
        self,
        directory: Path,
        options: BrokerOptions,
        clock: Clock,
        *,
        with_light_queues: bool = False,
        refusals: Refusals | None = None,
    ) -> None:
        self._refusals = refusals or Refusals()
        self._with_light_queues = with_light_queues
        self._options = options
        self._clock = clock
        self.table = {name: SubscriptionGroup(name) for name in BUILT_IN}
        self.version = DataVersion(0, clock.now_ms())
        self._texts: TableTexts[SubscriptionGroup] = TableTexts("subscriptionGroupTable")
        self.file = SavedFile(directory / "subscriptionGroup.json", self._text)

    def load(self) -> None:
        saved = self.file.load(lambda text: decode(SubscriptionGroupTable, text))
        if saved is not None:
            self.table.update(saved.groups)
            self.version = saved.data_version
        for name in self.table:
            if not _has_retry_topic(name):
                _log.warning("event=group_refused group=%.300s reason=no_retry_topic", name)
        self._texts.keep(self.table)  # encodes each entry once, before any request waits for it

    def find(self, name: str) -> SubscriptionGroup | None:
        """The group, created if the options allow it; None when it is unknown and may not be."""
        group = self.table.get(name)
        if group is None and self._with_light_queues and _has_retry_topic(name):
            group = light_group(name)
        if group is not None:
            return group
        allowed = self._options.auto_create_subscription_group or is_system_group(name)
        if not name or not allowed or not self._may_be_created(name):
            return None
        _log.info("event=group_created group=%s", name)
        group = SubscriptionGroup(name)
        self.put(group)
        return group

    def is_known(self, name: str) -> bool:
        """Whether there is such a group; none is created."""
        return name in self.table or (self._with_light_queues and _has_retry_topic(name))

    def require(self, name: str) -> SubscriptionGroup:
        """Like `find`; RequestRejected with the reason if there is none."""
        group = self.find(name)
        if group is None:
            refuse_without_retries(name)
            raise RequestRejected(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"group {name} does not exist")
        return group

    def put(self, group: SubscriptionGroup) -> None:
        """Create or replace a group. Light groups cannot be configured. RequestRejected when there are too many."""
        if self._with_light_queues and is_lmq(group.name):
            return
        if group.name not in self.table:
            self._refuse_too_many(group.name, self._options.groups_max)
        self.table[group.name] = group
        self._texts.write(group.name, group)
        self._changed()

    def _refuse_too_many(self, name: str, limit: int) -> None:
        if len(self.table) >= limit:
            reason = f"the broker has {len(self.table)}, as many as it may (groupsMax)"
        elif self._texts.size > TEXT_SIZE_MAX:
            reason = f"those of the broker take {self._texts.size >> 20} MiB: all of them must fit into one frame"
        else:
            return
        self._log_limit(name, limit)
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"group {name} is not created: {reason}")

    def _may_be_created(self, name: str) -> bool:
        """Whether a client may create the group: no other check of its name is made."""
        limit = min(self._options.auto_created_groups_max, self._options.groups_max)
        if len(self.table) < limit and self._texts.size <= AUTO_CREATED_SIZE_MAX and _has_retry_topic(name):
            return True
        self._log_limit(name, limit)
        return False

    def _log_limit(self, name: str, limit: int) -> None:
        text = "event=group_refused group=%.300s groups=%d limit=%d bytes=%d"
        self._refusals.note(Limit.GROUPS, _log, text, name, len(self.table), limit, self._texts.size)

    async def take(self, table: SubscriptionGroupTable) -> None:
        """Replace the table by the master's, version included; groups that the master does not have are removed."""
        async for name in in_turns(list(table.groups)):
            self._texts.write(name, table.groups[name])
        self.table.clear()
        self.table.update(table.groups)
        self._texts.keep(self.table)
        self.version = table.data_version
        self.file.mark()

    def delete(self, name: str) -> None:
        if self.table.pop(name, None) is not None:
            self._texts.forget(name)
            self._changed()

    def text(self) -> TableText[SubscriptionGroup]:
        """The text of the whole table as it is now."""
        return self._texts.of(self.version, self.table)

    def _changed(self) -> None:
        self.version = self.version.next(self._clock.now_ms())
        self.file.mark()

    def _text(self) -> Callable[[], str]:
        return self.text().pretty


def refuse_without_retries(name: str) -> None:
    """RequestRejected for a group that cannot have retries because its retry topic's name is illegal.

    Such a group may be in the table: RocketMQ, which does not check this, has written it.
    """
    try:
        check_retry_topic(name)
    except MessageIllegal as error:
        raise RequestRejected(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, str(error)) from error


def _has_retry_topic(name: str) -> bool:
    try:
        check_retry_topic(name)
    except MessageIllegal:
        return False
    return True
