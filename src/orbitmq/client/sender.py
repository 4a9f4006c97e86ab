"""Sends messages to brokers: chooses queues, makes the attempts of the send loop, probes brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from orbitmq.client.background import one_round
from orbitmq.client.core.hooks import (
    ForbiddenHook,
    SendContext,
    SendHook,
    call_after,
    call_before,
    each,
    message_kind,
)
from orbitmq.client.core.latency import PROBE_LOOK_S, PROBE_TIMEOUT_MS, FaultTable
from orbitmq.client.core.model import SendResult, SendStatus
from orbitmq.client.core.outgoing import Outgoing
from orbitmq.client.core.retry import RetryRules, SendLoop
from orbitmq.client.core.selection import QueueChooser, RoundRobin, queue_of_key
from orbitmq.client.instance import Instance
from orbitmq.errors import BrokerError, ClientError, OrbitMQError, RemotingError
from orbitmq.message.model import MASTER_ID, MessageQueue
from orbitmq.message.namespace import NO_NAMESPACE, Namespace
from orbitmq.message.topics import AUTO_CREATE_TOPIC
from orbitmq.net.remoting import RequestInFlight
from orbitmq.operations import offsets, sends
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import SendMessageV2Header

_log = logging.getLogger(__name__)

STATUSES: Mapping[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


@dataclass(frozen=True, slots=True)
class SendTarget:
    """Where the message must go: this queue, the queue of this key, or any."""

    queue: MessageQueue | None = None
    key: str | int | bytes | None = None
    select: Callable[[Sequence[MessageQueue]], MessageQueue] | None = None
    """The application's own choice among the queues it knows, without namespace."""

    @property
    def is_free(self) -> bool:
        """Whether any queue will do, so that a retry may take another one."""
        return self.queue is None and self.key is None and self.select is None


ANYWHERE = SendTarget()


class _Forbidden(Exception):
    """Carries the exception of a forbidding hook past the send loop, which would retry."""

    def __init__(self, reason: Exception) -> None:
        super().__init__()
        self.reason = reason


class MessageSender:
    """Sends for one producer group."""

    def __init__(
        self,
        instance: Instance,
        group: str,
        choosing: QueueChooser,
        *,
        template: str = AUTO_CREATE_TOPIC,
        template_queues: int = 4,
        hooks: Sequence[SendHook] = (),
        forbidden: Sequence[ForbiddenHook] = (),
        namespace: Namespace = NO_NAMESPACE,
        unit_mode: bool = False,
    ) -> None:
        self._namespace = namespace
        self._is_plain = not namespace
        self._unit_mode = unit_mode
        self._instance = instance
        self._hooks = hooks
        self._forbidden = forbidden
        self._group = group
        self._chooser = choosing
        self._template = template
        self._template_queues = template_queues
        self._late: set[asyncio.Task[None]] = set()
        """Oneway messages of callers that do not wait and that could not be written at once; while there are any,
        further oneway sends wait.
        """

    async def send(self, message: Outgoing, rules: RetryRules, target: SendTarget = ANYWHERE) -> SendResult:
        """Attempt until the message is stored or the rules end it. A chosen queue is attempted once; with
        `network_only` it is retried.
        """
        is_free = target is ANYWHERE or target.is_free
        if not (is_free or rules.network_only):
            rules = RetryRules(1, rules.timeout_ms, rules.codes)
        now_ms = self._now_ms()
        loop = SendLoop(rules, now_ms, message.topic)
        queues = await self._queues(message.topic)  # a topic without route fails at once, with its cause
        turns = self._chooser.turns(message.topic)
        turn = turns.take(len(queues))
        try:
            return await self._finish(message, loop, None if is_free else target, turn, queues)
        finally:
            turns.give_back(turn)

    def begin(
        self, message: Outgoing, rules: RetryRules, when_ended: Callable[[FirstAttempt], object]
    ) -> FirstAttempt | None:
        """`send` to any queue, if its first attempt needs no wait: without the coroutines and the task that cost more
        than the rest of a send. None, and nothing is done, otherwise.
        """
        known, remoting = self._instance.routes.publish(message.topic), self._instance.remoting
        watched = self._hooks or self._forbidden or self._chooser.measures or remoting.is_watched
        if known is None or watched or rules.timeout_ms < 1:
            return None
        now_ms, queues, turns = self._now_ms(), known.queues, self._chooser.turns(message.topic)
        turn = turns.take(len(queues))
        queue = turn.select(queues)
        address = self._instance.routes.known_master(queue)
        if address is not None:
            attempt = FirstAttempt(self, message, rules, now_ms, turn, queues, queue, address, when_ended)
            timeout_ms = rules.limit(rules.timeout_ms, rules.attempts)
            try:
                request = sends.start_send(
                    remoting, address, self._header(message, queue), message.body, timeout_ms, attempt
                )
            except Exception as error:
                self.take_failure(attempt, error)
                return attempt
            if request is not None:
                attempt.request = request
                return attempt
        turn.step_back()
        turns.give_back(turn)
        return None

    def take_response(self, attempt: FirstAttempt, response: Command) -> None:
        """The first attempt has a response."""
        try:
            reply = sends.reply_of(response, attempt.address)
            result = self._result(attempt.message, attempt.queue, reply)
        except Exception as error:  # the connection that calls this has others to serve
            self.take_failure(attempt, error)
            return
        if result.status is SendStatus.SEND_OK:
            attempt.give(result)
            attempt.end()
            return
        loop = attempt.loop()
        self._go_on(attempt, loop, ended=loop.stored(result))

    def take_failure(self, attempt: FirstAttempt, error: Exception) -> None:
        """The first attempt failed."""
        if isinstance(error, OrbitMQError):
            loop = attempt.loop()
            if self._instance.doubt(attempt.queue.broker_name, error):
                loop.doubted = attempt.address
            self._go_on(attempt, loop, ended=not loop.failed(error))
            return
        if not attempt.result.done():
            attempt.result.set_exception(error)
        attempt.end()

    def _go_on(self, attempt: FirstAttempt, loop: SendLoop, *, ended: bool) -> None:
        if attempt.result.done():  # the caller has cancelled
            attempt.end()
            return
        rest = self._finish(attempt.message, loop, None, attempt.turn, attempt.queues, ended=ended)
        attempt.follow(asyncio.get_running_loop().create_task(rest))

    def ended(self, attempt: FirstAttempt) -> None:
        """The outcome of the attempt is known."""
        self._chooser.turns(attempt.message.topic).give_back(attempt.turn)

    async def _finish(
        self,
        message: Outgoing,
        loop: SendLoop,
        target: SendTarget | None,
        turn: RoundRobin,
        queues: Sequence[MessageQueue],
        *,
        ended: bool = False,
    ) -> SendResult:
        """The outcome, after the attempts that `loop` knows; `ended`: there are no others."""
        try:
            return loop.outcome() if ended else await self._try(message, loop, target, turn, queues)
        except OrbitMQError:
            if loop.last_broker is not None and target is None:  # its other queues are next, and no better
                turn.leave(queues, loop.last_broker)
            raise

    async def _try(
        self,
        message: Outgoing,
        loop: SendLoop,
        target: SendTarget | None,
        turn: RoundRobin,
        queues: Sequence[MessageQueue],
    ) -> SendResult:
        queue: MessageQueue | None = None
        now_ms = loop.started_ms
        if loop.brokers and target is None:  # the route may be another since the first attempt
            await self._await_master(loop, queues)
            now_ms, queues = self._now_ms(), await self._queues(message.topic)
        while (left_ms := loop.time_left(now_ms)) is not None:
            if target is None:
                queue = self._chooser.choose(turn, queues, loop.last_broker, now_ms)
            elif queue is None:
                queue = await self.choose(message.topic, target)
            loop.attempt(queue.broker_name)
            address = self._instance.routes.known_master(queue)
            try:
                result = await self._attempt(message, queue, left_ms)
            except OrbitMQError as error:
                is_doubted = self._instance.doubt(queue.broker_name, error)
                address = address or self._instance.routes.known_master(queue) or ""  # the attempt may have found it
                loop.doubted = address if is_doubted or not address else None
                if not loop.failed(error):
                    break
                await self._await_master(loop, queues)
            except _Forbidden as forbidden:
                raise forbidden.reason from None
            else:
                if loop.stored(result):
                    break
            now_ms = self._now_ms()
            if target is None:
                queues = await self._queues(message.topic)  # the route may be another by now
        return loop.outcome()

    async def _await_master(self, loop: SendLoop, queues: Sequence[MessageQueue]) -> None:
        """A topic of one broker name has nowhere else to go while that has no master: wait for another one instead of
        spending all attempts at once.
        """
        name = loop.last_broker
        if loop.doubted is None or name is None or any(queue.broker_name != name for queue in queues):
            return
        await self._instance.another_master(name, loop.doubted, loop.wait_ms(self._now_ms()) / 1000)

    async def send_oneway(self, message: Outgoing, target: SendTarget = ANYWHERE) -> None:
        """One attempt, without a response."""
        queue = await self.choose(message.topic, target)
        address = await self._instance.routes.master(queue)
        try:
            context = self._begin(message, queue, address, oneway=True)
        except _Forbidden as forbidden:
            raise forbidden.reason from None
        try:
            await sends.send_oneway(self._instance.remoting, address, self._header(message, queue), message.body)
        except BaseException as error:
            self._end(context, None, error)
            raise
        self._end(context, None, None)

    def oneway_nowait(self, message: Outgoing, key: str | int | bytes | None) -> Callable[[], None] | None:
        """A function that writes a oneway message, to be called on the event loop; None if a route or a connection must
        be awaited first. Thread-safe: it changes nothing.
        """
        known = self._instance.routes.publish(message.topic)
        watched = self._hooks or self._forbidden or self._chooser.measures or self._instance.settings["vip_channel"]
        if watched or self._late or known is None:
            return None
        turn = self._chooser.turns(message.topic).shared
        queue = turn.select(known.queues) if key is None else queue_of_key(known.queues, key)
        address = self._instance.routes.known_master(queue)
        connection = self._instance.remoting.connection(address) if address is not None else None
        if address is None or connection is None or not connection.takes_more:
            return None
        return partial(self._write, message, queue, address)

    def _write(self, message: Outgoing, queue: MessageQueue, address: str) -> None:
        """After late messages, to keep the order of a queue."""
        header = self._header(message, queue)
        try:
            if not self._late and sends.send_oneway_nowait(self._instance.remoting, address, header, message.body):
                return
        except Exception as error:  # of a hook; the calling thread has moved on
            _log.warning("event=oneway_not_written topic=%s error=%r", message.topic, error)
            return
        task = asyncio.get_running_loop().create_task(self._write_late(message, queue))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _write_late(self, message: Outgoing, queue: MessageQueue) -> None:
        try:
            await self.send_oneway(message, SendTarget(queue))
        except Exception as error:
            _log.warning("event=oneway_not_written topic=%s error=%r", message.topic, error)

    async def finish(self, seconds: float) -> None:
        """Write late messages, for at most `seconds`."""
        if self._late:
            _, waiting = await asyncio.wait(self._late, timeout=seconds)
            for task in waiting:
                task.cancel()

    def _attempt(
        self, message: Outgoing, queue: MessageQueue, timeout_ms: int
    ) -> Coroutine[object, object, SendResult]:
        if self._chooser.measures:
            return self._measured(message, queue, timeout_ms)
        return self._send_to(queue, message, timeout_ms)

    async def _measured(self, message: Outgoing, queue: MessageQueue, timeout_ms: int) -> SendResult:
        began_ms, error = self._now_ms(), None
        try:
            return await self._send_to(queue, message, timeout_ms)
        except BaseException as raised:
            error = raised
            raise
        finally:  # the time a cancelled caller has waited says something about the broker
            now_ms, failed = self._now_ms(), isinstance(error, (RemotingError, BrokerError))
            reachable = not isinstance(error, RemotingError)
            name = queue.broker_name
            self._chooser.note(name, now_ms - began_ms, now_ms, failed=failed, reachable=reachable)

    async def _send_to(self, queue: MessageQueue, message: Outgoing, timeout_ms: int) -> SendResult:
        address = await self._instance.routes.master(queue)
        context = self._begin(message, queue, address) if self._hooks or self._forbidden else None
        try:
            header = self._header(message, queue)
            reply = await sends.send(self._instance.remoting, address, header, message.body, timeout_ms=timeout_ms)
        except BaseException as error:
            if context is not None:
                self._end(context, None, error)
            raise
        result = self._result(message, queue, reply)
        if context is not None:
            self._end(context, result, None)
        return result

    def _result(self, message: Outgoing, queue: MessageQueue, reply: sends.SendReply) -> SendResult:
        return SendResult(
            STATUSES[reply.code],
            message.msg_id,
            reply.offset_msg_id,
            queue if reply.queue_id == queue.queue_id and self._is_plain else self._stored_in(queue, reply.queue_id),
            reply.queue_offset,
            reply.region_id,
            reply.trace_on,
            reply.transaction_id,
            reply.recall_handle,
        )

    def _begin(self, message: Outgoing, queue: MessageQueue, address: str, *, oneway: bool = False) -> SendContext:
        """Exceptions of a forbidding hook go to the sender, without another attempt."""
        kind = message_kind(message)
        context = SendContext(self._group, message, queue, address, kind, oneway, self._instance.clock.now_ms())
        try:
            for forbid in self._forbidden:
                forbid(context)
        except Exception as reason:  # the application's
            raise _Forbidden(reason) from reason
        each(self._hooks, call_before, context)
        return context

    def _end(self, context: SendContext, result: SendResult | None, error: BaseException | None) -> None:
        context.cost_ms = self._instance.clock.now_ms() - context.began_ms
        context.result, context.error = result, error
        each(self._hooks, call_after, context)

    def _stored_in(self, queue: MessageQueue, queue_id: int) -> MessageQueue:
        stored = queue if queue.queue_id == queue_id else replace(queue, queue_id=queue_id)
        return self._namespace.unwrap_queue(stored)

    def _header(self, message: Outgoing, queue: MessageQueue) -> SendMessageV2Header:
        born_ms, template, count = self._instance.clock.now_ms(), self._template, self._template_queues
        return message.header(self._group, queue, born_ms, template, count, unit_mode=self._unit_mode)

    async def choose(self, topic: str, target: SendTarget) -> MessageQueue:
        """The queue for a message. ClientError without one."""
        if target.queue is not None:
            if target.queue.topic != topic:
                raise ClientError(
                    ResponseCode.MESSAGE_ILLEGAL, f"message of topic {topic}, queue of {target.queue.topic}"
                )
            return target.queue
        queues = await self._queues(topic)
        if target.key is not None:
            return queue_of_key(queues, target.key)
        if target.select is not None:
            return self._selected(topic, queues, target.select)
        return self._chooser.choose(self._chooser.turns(topic).shared, queues, None, self._now_ms())

    def _selected(
        self,
        topic: str,
        queues: Sequence[MessageQueue],
        select: Callable[[Sequence[MessageQueue]], MessageQueue],
    ) -> MessageQueue:
        """The application's choice. ClientError unless it is a queue of the topic."""
        try:
            chosen: object = select([self._namespace.unwrap_queue(queue) for queue in queues])
        except Exception as error:  # the application's code
            raise ClientError(
                ResponseCode.MESSAGE_ILLEGAL, f"the selector failed: {type(error).__name__}: {error}"
            ) from error
        inside = self._namespace.wrap_queue(chosen) if isinstance(chosen, MessageQueue) else None
        if inside is None or inside.topic != topic:
            raise ClientError(
                ResponseCode.MESSAGE_ILLEGAL, f"the selector gave no queue of topic {topic} but {chosen!r}"
            )
        return inside

    async def _queues(self, topic: str) -> tuple[MessageQueue, ...]:
        routes = self._instance.routes
        known = routes.publish(topic) or await routes.find_publish(topic, self._template, self._template_queues)
        return known.queues

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)  # a budget must not jump with the wall clock


class Single:
    """A message that is checked and packed; called with rules it is sent, as a `Delivery`."""

    def __init__(self, sender: MessageSender, message: Outgoing, target: SendTarget) -> None:
        self._sender = sender
        self._message = message
        self._target = target

    async def __call__(self, rules: RetryRules) -> SendResult:
        return await self._sender.send(self._message, rules, self._target)

    def begin(self, rules: RetryRules, when_ended: Callable[[FirstAttempt], object]) -> FirstAttempt | None:
        """`MessageSender.begin`; None for a message that may not go to any queue."""
        return self._sender.begin(self._message, rules, when_ended) if self._target.is_free else None


class FirstAttempt:
    """A send that `MessageSender.begin` has begun; `result` is the future of its outcome. Its connection gives it the
    response, as it would a future.
    """

    def __init__(
        self,
        sender: MessageSender,
        message: Outgoing,
        rules: RetryRules,
        started_ms: int,
        turn: RoundRobin,
        queues: Sequence[MessageQueue],
        queue: MessageQueue,
        address: str,
        when_ended: Callable[[FirstAttempt], object],
    ) -> None:
        self.message = message
        self.rules = rules
        self.started_ms = started_ms
        self.turn = turn
        self.queues = queues
        self.queue = queue
        self.address = address
        self.request: RequestInFlight | None = None
        self.result: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        self._sender = sender
        self._when_ended = when_ended
        self._has_ended = False

    def done(self) -> bool:
        return self._has_ended

    def set_result(self, response: Command) -> None:
        self._sender.take_response(self, response)

    def set_exception(self, error: Exception) -> None:
        self._sender.take_failure(self, error)

    def loop(self) -> SendLoop:
        """The loop after this attempt."""
        loop = SendLoop(self.rules, self.started_ms, self.message.topic)
        loop.attempt(self.queue.broker_name)
        return loop

    def abandon(self) -> None:
        """Nobody waits for the outcome any more."""
        if self.request is not None:
            self.request.forget()
        if self.result.done() and not self.result.cancelled():
            self.result.exception()  # else asyncio reports one that nobody has retrieved
        self.end()

    def give_up_if_cancelled(self, result: asyncio.Future[SendResult]) -> None:
        """A callback of `result`."""
        if result.cancelled():
            self.abandon()

    def end(self) -> None:
        """Give back what the send has taken."""
        if not self._has_ended:
            self._has_ended = True
            self._sender.ended(self)
            self._when_ended(self)

    def follow(self, rest: asyncio.Task[SendResult]) -> None:
        """The outcome is that of a task."""
        rest.add_done_callback(self._take_over)
        self.result.add_done_callback(lambda _: rest.cancel())

    def _take_over(self, rest: asyncio.Task[SendResult]) -> None:
        if rest.cancelled():
            self.result.cancel()
        elif (error := rest.exception()) is None:
            self.give(rest.result())
        elif not self.result.done():
            self.result.set_exception(error)
        self.end()

    def give(self, result: SendResult) -> None:
        """The outcome, unless the caller has cancelled."""
        if not self.result.done():
            self.result.set_result(result)


async def probe_regularly(instance: Instance, faults: FaultTable) -> None:
    """Probe the brokers that the network did not reach, until cancelled: those that respond are used again."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(PROBE_LOOK_S)
        due = faults.to_probe(int(loop.time() * 1000))
        with one_round(instance.client_id, "probing"):
            await asyncio.gather(*(_probe(instance, faults, name) for name in due))


async def _probe(instance: Instance, faults: FaultTable, broker_name: str) -> None:
    address = instance.routes.addresses(broker_name).get(MASTER_ID)
    if address is None:
        return
    try:
        queue = MessageQueue(AUTO_CREATE_TOPIC, broker_name, 0)
        await offsets.max_offset(instance.remoting, address, queue, timeout_ms=PROBE_TIMEOUT_MS)
    except BrokerError:
        pass  # a refusal is a response
    except OrbitMQError:
        return
    faults.probed(broker_name)
