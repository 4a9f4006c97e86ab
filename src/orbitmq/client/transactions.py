"""The transaction producer for asyncio. `orbitmq.client.sync` has the same for threads."""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar, Unpack, cast, overload

from orbitmq.client.background import one_round
from orbitmq.client.core.arguments import checks_arguments
from orbitmq.client.core.hooks import each
from orbitmq.client.core.model import LocalTransactionState, SendResult, SendStatus, TransactionSendResult
from orbitmq.client.core.outgoing_message import check_message, outgoing
from orbitmq.client.core.transaction_end import EndContext, EndTransactionHook, trace_of
from orbitmq.client.instance import Instance
from orbitmq.client.loops import is_failure
from orbitmq.client.producer import Producer, end_of
from orbitmq.client.settings import ProducerSettings, TransactionSettings
from orbitmq.client.threads import on_thread
from orbitmq.client.trace_dispatcher import DEFAULT_REGION
from orbitmq.client.transaction_checks import TransactionCheck
from orbitmq.errors import OrbitMQError
from orbitmq.message.flags import TRANSACTION_COMMIT, TRANSACTION_NOT, TRANSACTION_ROLLBACK
from orbitmq.message.ids import decode_offset_message_id
from orbitmq.message.model import Message, MessageExt
from orbitmq.message.properties import DELAY, MSG_REGION, PGROUP, TRAN_MSG, TRANSACTION_ID, UNIQ_KEY
from orbitmq.operations.transactions import end_command, end_transaction_oneway
from orbitmq.wire.headers_transaction import EndTransactionHeader

if TYPE_CHECKING:
    from orbitmq.client.outbox import Outbox

_log = logging.getLogger(__name__)

_DECISIONS = {
    LocalTransactionState.COMMIT_MESSAGE: TRANSACTION_COMMIT,
    LocalTransactionState.ROLLBACK_MESSAGE: TRANSACTION_ROLLBACK,
    LocalTransactionState.UNKNOWN: TRANSACTION_NOT,
}


A_contra = TypeVar("A_contra", contravariant=True)
"""What the application gives to `send_in_transaction` for its listener."""


class TransactionListener(Protocol[A_contra]):
    """The application's side of a transaction; each method may also be a coroutine function.

    What a method raises, and anything but a `LocalTransactionState`, counts as UNKNOWN: the broker asks later.
    """

    def execute(
        self, message: Message, argument: A_contra, /
    ) -> LocalTransactionState | Awaitable[LocalTransactionState]:
        """Do the application's own work now that the broker holds the message. `message.transaction_id` is the id under
        which the outcome must be found by `check`, also from another process.
        """

    def check(self, message: MessageExt, /) -> LocalTransactionState | Awaitable[LocalTransactionState]:
        """Say how the work for this message ended. The broker asks any member of the producer group."""


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A message the broker holds back until its producer decides: what `prepare` gives and `finish` takes."""

    message: Message
    """As it was sent, with its `transaction_id`."""
    result: SendResult
    """The broker's receipt."""

    @property
    def is_safe(self) -> bool:
        """Whether it is stored as safely as the broker is configured to; only then the work should be done."""
        return self.result.status is SendStatus.SEND_OK


class TransactionProducer(Producer, Generic[A_contra]):
    """Sends messages that are delivered if and only if something else succeeded.

        class Orders:
            def execute(self, message, order):  # runs between the two halves
                save(order, transaction=message.transaction_id)
                return LocalTransactionState.COMMIT_MESSAGE

            def check(self, message):  # the broker did not hear how it ended
                known = is_saved(transaction=message.transaction_id)
                return LocalTransactionState.COMMIT_MESSAGE if known else LocalTransactionState.UNKNOWN

        async with TransactionProducer("group", "127.0.0.1:9876", listener=Orders()) as producer:
            await producer.send_in_transaction(Message("topic", b"body"), order)

    From its start on every master of its name servers knows it, those that join later, too, and may ask it about
    transactions that other members of the group have left undecided. Start waits for their answers, and raises nothing
    for one that does not answer: it is tried again.

    Otherwise a `Producer`. Plain functions of the listener run on threads of their own. Half messages are never kept in
    an outbox: the work must not be done for a message that is not there.
    """

    _kind: ClassVar[type[ProducerSettings]] = TransactionSettings

    @checks_arguments
    def __init__(
        self,
        group: str,
        namesrv_addr: str | Iterable[str] | None = None,
        *,
        listener: TransactionListener[A_contra],
        outbox: Outbox | None = None,
        **settings: Unpack[TransactionSettings],
    ) -> None:
        super().__init__(group, namesrv_addr, outbox=outbox, **cast("ProducerSettings", settings))
        self._listener = listener
        limits = cast("TransactionSettings", self._settings)
        self._check_threads = limits["check_threads"]
        self._questions: asyncio.Queue[TransactionCheck] = asyncio.Queue(limits["check_queue"])
        self._checkers: list[asyncio.Task[None]] = []
        self._end_hooks: list[EndTransactionHook] = []

    @property
    def listener(self) -> TransactionListener[A_contra]:
        """The application's side."""
        return self._listener

    @overload
    async def send_in_transaction(
        self: TransactionProducer[None], message: Message, argument: None = None, *, timeout: float | None = None
    ) -> TransactionSendResult: ...

    @overload
    async def send_in_transaction(
        self, message: Message, argument: A_contra, *, timeout: float | None = None
    ) -> TransactionSendResult: ...

    @checks_arguments
    async def send_in_transaction(
        self, message: Message, argument: object = None, *, timeout: float | None = None
    ) -> TransactionSendResult:
        """Store the message invisibly, have the listener do its work, and tell the broker how that ended.

        The work is not done when the message was not stored, which raises as `send` does, or not stored safely, which
        is a rollback. Whether the broker hears of the end does not matter here: it asks.
        """
        half = await self.prepare(message, timeout=timeout)
        if not half.is_safe:
            return await self.finish(half, LocalTransactionState.ROLLBACK_MESSAGE)
        state, remark = await _outcome(lambda: _called(self._listener.execute, half.message, argument))
        return await self.finish(half, state, remark)

    @checks_arguments
    async def prepare(self, message: Message, *, timeout: float | None = None) -> HalfMessage:
        """Only the first half, for work that is not the listener's: `finish` must follow, or the broker asks. Raises as
        `send` does; a delay is taken off the message.
        """
        check_message(message, self._settings["max_message_size"])
        half = copy.copy(message)
        half.properties = {**message.properties, TRAN_MSG: "true", PGROUP: self.group}
        half.properties.pop(DELAY, None)
        with self._around([half]) as (sent,):
            packed, rules = outgoing(sent, self._new_id, self._packing), self._usual_rules
            deliver, ends = partial(self._running_sender.send, packed), None if timeout is None else end_of(timeout)
            result = await self._in_turn(deliver, len(packed.body), rules, ends)
        half.properties[UNIQ_KEY] = half.transaction_id = packed.msg_id
        if result.transaction_id:
            half.properties[TRANSACTION_ID] = result.transaction_id
        return HalfMessage(half, result)

    @checks_arguments
    async def finish(
        self, half: HalfMessage, state: LocalTransactionState, remark: str | None = None
    ) -> TransactionSendResult:
        """Tell the broker how the work for a half message ended. `remark` is for its log.

        Nothing is raised for a broker that cannot be told: it asks. InvalidStateError unless the producer is running.
        """
        result, instance = half.result, self._instance
        try:
            header = EndTransactionHeader(
                producer_group=self.group,
                tran_state_table_offset=result.queue_offset,
                commit_log_offset=decode_offset_message_id(result.offset_msg_id).physical_offset,
                commit_or_rollback=_DECISIONS[state],
                msg_id=result.msg_id,
                transaction_id=result.transaction_id,
                broker_name=result.queue.broker_name,
            )
            address = await instance.routes.master(self._namespace.wrap_queue(result.queue))
            self._show(half.message, result.msg_id, result.transaction_id, address, state, from_check=False)
            await end_transaction_oneway(instance.remoting, address, header, remark)
        except OrbitMQError as error:
            _log.warning("event=transaction_end_not_told id=%s state=%s error=%s", result.msg_id, state.name, error)
        return TransactionSendResult(
            result.status, result.msg_id, result.offset_msg_id, result.queue, result.queue_offset,
            result.region_id, result.trace_on, result.transaction_id, state,
        )  # fmt: skip

    @checks_arguments
    def add_end_transaction_hook(self, hook: EndTransactionHook) -> None:
        """Have `hook` see every decision before a broker is told. It runs on the event loop and must not wait."""
        self._end_hooks.append(hook)

    def _show(
        self,
        message: Message,
        msg_id: str,
        transaction_id: str | None,
        address: str,
        state: LocalTransactionState,
        *,
        from_check: bool,
    ) -> None:
        if self._end_hooks:
            now_ms = self._instance.clock.now_ms()
            context = EndContext(self.group, message, msg_id, transaction_id, address, state, from_check, now_ms)
            each(self._end_hooks, lambda hook, seen: hook(seen), context)

    def _trace(self, context: EndContext) -> None:
        assert self._traces is not None, "added where traces are"
        region = context.message.properties.get(MSG_REGION, DEFAULT_REGION)
        self._traces.add([trace_of(context)], [context.msg_id, *context.message.keys.split()], region)

    # ------------------------------------------------------------------------------------------------- being asked

    def _hear(self, question: TransactionCheck) -> None:
        try:
            self._questions.put_nowait(question)
        except asyncio.QueueFull:
            _log.warning("event=transaction_question_dropped group=%s waiting=%d", self.group, self._questions.qsize())

    async def _answer_questions(self) -> None:
        while True:
            question = await self._questions.get()
            with one_round(self.group, "transaction question"):  # a hook around requests may raise; it is asked again
                try:
                    await self._answer(question)
                except OrbitMQError as error:
                    _log.warning("event=transaction_question_not_answered group=%s error=%s", self.group, error)

    async def _answer(self, question: TransactionCheck) -> None:
        message, asked = self._seen(question.message), question.header
        state, remark = await _outcome(lambda: _called(self._listener.check, message))
        header = EndTransactionHeader(
            producer_group=self.group,
            tran_state_table_offset=asked.tran_state_table_offset,
            commit_log_offset=asked.commit_log_offset,
            commit_or_rollback=_DECISIONS[state],
            from_transaction_check=True,
            msg_id=message.transaction_id or asked.msg_id,
            transaction_id=asked.transaction_id,
        )
        if self._shared is not None:
            address = question.connection.address
            self._show(message, header.msg_id or "", header.transaction_id, address, state, from_check=True)
            self._shared.remoting.tell(question.connection, end_command(header, remark))

    async def _begin(self, instance: Instance) -> None:
        loop = asyncio.get_running_loop()
        self._checkers = [loop.create_task(self._answer_questions()) for _ in range(self._check_threads)]
        instance.questions.producers[self.group] = self._hear
        await super()._begin(instance)
        if self._traces is not None:
            self._end_hooks.append(self._trace)

    async def _join(self, instance: Instance) -> None:
        await instance.add_decider(self.group)

    async def _leave(self, instance: Instance) -> None:
        instance.questions.producers.pop(self.group, None)
        for task in self._checkers:
            task.cancel()
        await asyncio.gather(*self._checkers, return_exceptions=True)
        await super()._leave(instance)


async def _outcome(work: Callable[[], Awaitable[object]]) -> tuple[LocalTransactionState, str | None]:
    """What a listener said, and what the broker's log should say when it said nothing useful."""
    try:
        state = await work()
    except BaseException as error:
        if not is_failure(error):
            raise
        return failed(error)
    return checked(state)


def failed(error: BaseException) -> tuple[LocalTransactionState, str | None]:
    """The outcome of a listener that raised; to be called where it was caught."""
    _log.warning("event=transaction_listener_failed", exc_info=True)
    return LocalTransactionState.UNKNOWN, f"the listener failed: {type(error).__name__}: {error}"


def checked(state: object) -> tuple[LocalTransactionState, str | None]:
    """The outcome of a listener that returned."""
    if isinstance(state, LocalTransactionState):
        return state, None
    _log.warning("event=transaction_listener_gave_no_state value=%.80r", state)
    return LocalTransactionState.UNKNOWN, f"the listener gave no state but {type(state).__name__}"


async def _called(function: Callable[..., object], *arguments: object) -> object:
    """Run a coroutine function here, anything else on a thread that does not keep the interpreter from ending."""
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    found = await on_thread("orbitmq-transaction", lambda: function(*arguments))
    return await found if inspect.isawaitable(found) else found
