"""RECALL_MESSAGE: a timer message is not delivered.

A message that names it is put to the timer topic, due at the same time, where it is found first: so the recall is as
durable as the message. That the answer is a success does not say that there was such a message.
"""

from __future__ import annotations

from orbitmq.broker.message_writer import MessageWriter
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.send_handler import OUTCOMES, SendHandler
from orbitmq.broker.topics import Topics
from orbitmq.errors import MessageIllegal, RequestRejected
from orbitmq.message.properties import TAGS, TIMER_DEL_UNIQKEY, TIMER_DELIVER_MS, UNIQ_KEY, encode_properties
from orbitmq.message.timers import RECALL_TAG, RecallHandle, recall_key
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Router
from orbitmq.runtime.clock import Clock
from orbitmq.store.records import PutRecord, PutStatus
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_timer import RecallMessageHeader
from orbitmq.wire.requests import RequestCode

BODY = b"0"


class Recalling:
    """The handler of recalls."""

    def __init__(
        self, writing: MessageWriter, sending: SendHandler, topics: Topics, options: BrokerOptions, clock: Clock
    ) -> None:
        self._writing = writing
        self._sending = sending
        self._topics = topics
        self._options = options
        self._clock = clock

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.RECALL_MESSAGE, self.recall)

    async def recall(self, connection: Connection, command: Command) -> Command:
        """Recall the message that the handle names. RequestRejected."""
        header = command.header(RecallMessageHeader)
        handle = self._checked(header)
        now_ms = self._clock.now_ms()
        properties = {
            TIMER_DEL_UNIQKEY: recall_key(handle.topic, handle.unique_id),
            UNIQ_KEY: handle.unique_id,
            TAGS: RECALL_TAG,
            TIMER_DELIVER_MS: str(handle.due_ms),
        }
        record = PutRecord(
            topic=handle.topic,
            queue_id=0,
            body=BODY,
            properties=encode_properties(properties).encode(),
            born_timestamp=now_ms,
            born_host=connection.peer_host,
            store_host=self._sending.store_host,
        )
        status = await self._writing.put_durably(record)
        code, remark = OUTCOMES[status]
        answer = command.response(code, remark)
        if status is PutStatus.PUT_OK:
            answer.ext = {"msgId": handle.unique_id}
        return answer

    def _checked(self, header: RecallMessageHeader) -> RecallHandle:
        if not self._options.recall_message_enable:
            remark = "recall failed, operation is forbidden: set recallMessageEnable=true"
            raise RequestRejected(ResponseCode.NO_PERMISSION, remark)
        if self._topics.get(header.topic) is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, topic {header.topic} does not exist")
        try:
            handle = RecallHandle.decode(header.recall_handle)
        except MessageIllegal as error:
            raise RequestRejected(ResponseCode.ILLEGAL_OPERATION, f"recall failed, {error}") from error
        left_ms = handle.due_ms - self._clock.now_ms()
        for is_wrong, text in (
            (handle.topic != header.topic, f"the handle is of topic {handle.topic}"),
            (handle.broker_name != self._options.broker_name, f"the handle is of broker {handle.broker_name}"),
            (left_ms <= 0, "the message is delivered already"),
            (left_ms > self._options.timer_max_delay_s * 1000, "no message may wait as long as the handle says"),
        ):
            if is_wrong:
                raise RequestRejected(ResponseCode.ILLEGAL_OPERATION, f"recall failed, {text}")
        return handle
