"""The transaction producer for asyncio. `orbitmq.client.sync` has the same for threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, Unpack, cast, overload

from orbitmq.client.background import one_round
from orbitmq.client.base import ClientState
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

_own: ContextVar[concurrent.futures.Future[None] | None] = ContextVar("transaction", default=None)
"""The transaction that the caller is in."""

_DECISIONS = {
    LocalTransactionState.COMMIT_MESSAGE: TRANSACTION_COMMIT,
    LocalTransactionState.ROLLBACK_MESSAGE: TRANSACTION_ROLLBACK,
    LocalTransactionState.UNKNOWN: TRANSACTION_NOT,
}


A_contra = TypeVar("A_contra", contravariant=True)
"""The argument of `send_in_transaction` for the listener."""


class TransactionListener(Protocol[A_contra]):
    """Your side of a transaction; each method may also be a coroutine function.

    An exception, and any result but a `LocalTransactionState`, counts as UNKNOWN: the broker checks later.
    """

    def execute(
        self, message: Message, argument: A_contra, /
    ) -> LocalTransactionState | Awaitable[LocalTransactionState]:
        """Run the local transaction; the broker has stored the half message. `check` must be able to find the outcome
        by `message.transaction_id`, also in another process.
        """

    def check(self, message: MessageExt, /) -> LocalTransactionState | Awaitable[LocalTransactionState]:
        """Return the outcome of the local transaction for this message. The broker may ask any member of the producer
        group.
        """


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A message that is not delivered until its producer decides: the result of `prepare`, to be passed to `finish`."""

    message: Message
    """As it was sent, with its `transaction_id`."""
    result: SendResult
    """The response of the broker."""

    @property
    def is_safe(self) -> bool:
        """Whether it is stored as safely as the broker is configured to; run the local transaction only then."""
        return self.result.status is SendStatus.SEND_OK


class TransactionProducer(Producer, Generic[A_contra]):
    """Sends messages that are delivered if and only if a local transaction succeeded.

        class Orders:
            def execute(self, message, order):  # runs while the half message waits
                save(order, transaction=message.transaction_id)
                return LocalTransactionState.COMMIT_MESSAGE

            def check(self, message):  # the broker has no decision yet
                known = is_saved(transaction=message.transaction_id)
                return LocalTransactionState.COMMIT_MESSAGE if known else LocalTransactionState.UNKNOWN

        async with TransactionProducer("group", "127.0.0.1:9876", listener=Orders()) as producer:
            await producer.send_in_transaction(Message("topic", b"body"), order)

    When it starts, it registers with every master that the name servers know, and later with those that join. Masters
    may check transactions with it that other members of the group have left undecided. `start` waits for their
    responses; a master that does not respond is retried and raises nothing.

    Otherwise a `Producer`. Plain functions of the listener run on threads of their own. Half messages are never kept in
    an outbox: the local transaction must not run for a message that is not stored.
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
        self._checks: asyncio.Queue[TransactionCheck] = asyncio.Queue(limits["check_queue"])
        self._checkers: list[asyncio.Task[None]] = []
        self._end_hooks: list[EndTransactionHook] = []
        self._in_progress: set[concurrent.futures.Future[None]] = set()
        """Transactions whose decision is not sent yet, of any thread."""
        self._ending: Instance | None = None
        """Takes the last decisions, while shutdown waits for them."""

    @property
    def listener(self) -> TransactionListener[A_contra]:
        """Your listener."""
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
        """Store the message as a half message, run the listener's local transaction, and send the decision to the
        broker.

        The local transaction does not run when the message was not stored, which raises as `send` does, or not stored
        safely, which is a rollback. A decision that does not reach the broker does no harm: it checks later. `shutdown`
        waits for it, up to 30 s.
        """
        with self._transaction():
            half = await self.prepare(message, timeout=timeout)
            if not half.is_safe:
                return await self.finish(half, LocalTransactionState.ROLLBACK_MESSAGE)
            state, remark = await _outcome(lambda: _called(self._listener.execute, half.message, argument))
            return await self.finish(half, state, remark)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Around a transaction, in any thread: shutdown waits for its end."""
        end = concurrent.futures.Future[None]()
        end.set_running_or_notify_cancel()  # a shutdown that waits no longer must not cancel it
        self._in_progress.add(end)
        token = _own.set(end)
        try:
            yield
        finally:
            _own.reset(token)
            self._in_progress.discard(end)
            end.set_result(None)

    def _unfinished(self) -> set[asyncio.Future[Any]]:
        """All but the transaction that shuts the producer down, or in which a signal handler does."""
        others = self._in_progress - {_own.get()}
        return super()._unfinished() | {asyncio.wrap_future(end) for end in others}

    @checks_arguments
    async def prepare(self, message: Message, *, timeout: float | None = None) -> HalfMessage:
        """Send only the half message, for a local transaction outside the listener: call `finish` afterwards, or the
        broker checks. Raises as `send` does; a delay is removed from the message.
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
        """Send the decision about a half message to the broker. `remark` is for its log.

        Raises nothing when the broker cannot be reached, or the producer has been shut down: the broker checks later.
        InvalidStateError before start.
        """
        result = half.result
        if self._state is not ClientState.CLOSED:
            self._check_running()
        try:
            instance = self._ending or self._instance
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
            _log.warning("event=transaction_end_not_sent id=%s state=%s error=%s", result.msg_id, state.name, error)
        return TransactionSendResult(
            result.status, result.msg_id, result.offset_msg_id, result.queue, result.queue_offset,
            result.region_id, result.trace_on, result.transaction_id, None, state,
        )  # fmt: skip

    @checks_arguments
    def add_end_transaction_hook(self, hook: EndTransactionHook) -> None:
        """Call `hook` for every decision before it is sent. It runs on the event loop and must not block."""
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
            assert self._shared is not None, "there are no decisions before start"
            now_ms = self._shared.clock.now_ms()
            context = EndContext(self.group, message, msg_id, transaction_id, address, state, from_check, now_ms)
            each(self._end_hooks, lambda hook, seen: hook(seen), context)

    def _trace(self, context: EndContext) -> None:
        assert self._traces is not None, "added where traces are"
        region = context.message.properties.get(MSG_REGION, DEFAULT_REGION)
        self._traces.add([trace_of(context)], [context.msg_id, *context.message.keys.split()], region)

    # ---------------------------------------------------------------------------------------------- transaction checks

    def _queue_check(self, check: TransactionCheck) -> None:
        try:
            self._checks.put_nowait(check)
        except asyncio.QueueFull:
            _log.warning("event=transaction_check_dropped group=%s waiting=%d", self.group, self._checks.qsize())

    async def _process_checks(self) -> None:
        while True:
            check = await self._checks.get()
            with one_round(self.group, "transaction check"):  # of a hook; the broker repeats it
                try:
                    await self._process_check(check)
                except OrbitMQError as error:
                    _log.warning("event=transaction_check_failed group=%s error=%s", self.group, error)

    async def _process_check(self, check: TransactionCheck) -> None:
        message, request = self._seen(check.message), check.header
        state, remark = await _outcome(lambda: _called(self._listener.check, message))
        header = EndTransactionHeader(
            producer_group=self.group,
            tran_state_table_offset=request.tran_state_table_offset,
            commit_log_offset=request.commit_log_offset,
            commit_or_rollback=_DECISIONS[state],
            from_transaction_check=True,
            msg_id=message.transaction_id or request.msg_id,
            transaction_id=request.transaction_id,
        )
        if self._shared is not None:
            address = check.connection.address
            self._show(message, header.msg_id or "", header.transaction_id, address, state, from_check=True)
            self._shared.remoting.tell(check.connection, end_command(header, remark))

    async def _begin(self, instance: Instance) -> None:
        loop = asyncio.get_running_loop()
        self._checkers = [loop.create_task(self._process_checks()) for _ in range(self._check_threads)]
        instance.transaction_checks.producers[self.group] = self._queue_check
        await super()._begin(instance)
        if self._traces is not None:
            self._end_hooks.append(self._trace)

    async def _join(self, instance: Instance) -> None:
        await instance.add_decider(self.group)

    async def _end(self, instance: Instance) -> None:
        self._ending = instance
        try:
            await super()._end(instance)
        finally:
            self._ending = None

    async def _leave(self, instance: Instance) -> None:
        instance.transaction_checks.producers.pop(self.group, None)
        for task in self._checkers:
            task.cancel()
        await asyncio.gather(*self._checkers, return_exceptions=True)
        await super()._leave(instance)


def transaction(producer: TransactionProducer[A_contra]) -> AbstractContextManager[None]:
    """For threads: what `send_in_transaction` does is inside of it."""
    return producer._transaction()  # noqa: SLF001 - not for applications


async def _outcome(work: Callable[[], Awaitable[object]]) -> tuple[LocalTransactionState, str | None]:
    """The decision of a listener, and a remark for the broker's log when there is none."""
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
    _log.warning("event=transaction_listener_returned_no_state value=%.80r", state)
    return LocalTransactionState.UNKNOWN, f"the listener returned no LocalTransactionState but {type(state).__name__}"


async def _called(function: Callable[..., object], *arguments: object) -> object:
    """Run a coroutine function here, anything else on a thread that does not keep the interpreter from ending."""
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    found = await on_thread("orbitmq-transaction", lambda: function(*arguments))
    return await found if inspect.isawaitable(found) else found
