"""The request handlers of a name server, one small method per code. Decides nothing about routes, opens no socket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from orbitmq.errors import RequestRejected
from orbitmq.message.config import DataVersion
from orbitmq.message.topics import ORDER_NAMESPACE
from orbitmq.namesrv.kv import KVConfig
from orbitmq.namesrv.options import NamesrvOptions
from orbitmq.namesrv.routes import BrokerIdentity, RouteTable, has_unit_subscription, is_unit
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Router
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.files import save_with_backup
from orbitmq.runtime.refusals import Limit, Refusals
from orbitmq.wire import headers_namesrv as headers
from orbitmq.wire.bodies import BrokerRegistration, KVTable, TopicList, TopicTable
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.objects import decode_request, encode, encode_standard
from orbitmq.wire.registration import decode_head, decode_registration, registration_crc
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.settings import decode_settings, encode_settings

_log = logging.getLogger(__name__)

# Ordinals as in the command header.
REGISTRATION_BODY_VERSION = 37  # V3_0_11; older brokers send the topic table alone
STANDARD_JSON_VERSION = 401  # V4_9_4; from here on clients take routes as standard JSON
SETTINGS_LINES = 20  # in the log, of changes that come together

_NO_ROUTE = (
    "No topic route info in name server for the topic: {}\n"
    "See http://rocketmq.apache.org/docs/faq/ for further details."
)


class Handlers:
    """The requests of one name server over its tables."""

    def __init__(
        self, options: NamesrvOptions, routes: RouteTable, kv: KVConfig, clock: Clock, refusals: Refusals | None = None
    ) -> None:
        self._refusals = refusals or Refusals()
        self.options = options
        self._routes = routes
        self._kv = kv
        self._saving = asyncio.Lock()  # one file is written at a time
        self._clock = clock

    def router(self) -> Router:
        """Every request code that a name server handles."""
        code = RequestCode
        router = Router("namesrv")
        router.add_change(code.PUT_KV_CONFIG, self.put_kv)
        router.add(code.GET_KV_CONFIG, self.get_kv)
        router.add_change(code.DELETE_KV_CONFIG, self.delete_kv)
        router.add(code.GET_KVLIST_BY_NAMESPACE, self.list_kv)
        router.add(code.REGISTER_BROKER, self.register)
        router.add(code.UNREGISTER_BROKER, self.unregister)
        router.add(code.QUERY_DATA_VERSION, self.query_data_version)
        router.add(code.GET_ROUTEINFO_BY_TOPIC, self.route)
        router.add(code.GET_BROKER_CLUSTER_INFO, self.cluster_info)
        router.add(code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, self.topics)
        router.add(code.GET_TOPICS_BY_CLUSTER, self.topics_of_cluster)
        router.add(code.GET_SYSTEM_TOPIC_LIST_FROM_NS, self.system_topics)
        router.add(code.GET_UNIT_TOPIC_LIST, self.unit_topics)
        router.add(code.GET_HAS_UNIT_SUB_TOPIC_LIST, self.unit_subscription_topics)
        router.add(code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, self.unit_subscription_only_topics)
        router.add(code.DELETE_TOPIC_IN_NAMESRV, self.delete_topic)
        router.add(code.WIPE_WRITE_PERM_OF_BROKER, self.wipe_write_permission)
        router.add(code.ADD_WRITE_PERM_OF_BROKER, self.add_write_permission)
        router.add(code.GET_NAMESRV_CONFIG, self.get_config)
        router.add_change(code.UPDATE_NAMESRV_CONFIG, self.update_config)
        return router

    def connection_closed(self, connection: Hashable) -> None:
        """A broker whose connection breaks is removed at once: clients must not wait two minutes for it."""
        for address in self._routes.connection_closed(connection):
            _log.info("event=broker_gone address=%s reason=connection_closed", address)

    # ------------------------------------------------------------------------------------------------------- brokers

    def register(self, connection: Connection, command: Command) -> Command:
        header = command.header(headers.RegisterBrokerHeader)
        if header.body_crc32 and header.body_crc32 != registration_crc(command.body):
            return command.response(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        identity = _identity(header)
        is_new = self._routes.data_version(identity) is None
        registration = _registration(command, self._routes.known_version(identity), compressed=header.compressed)
        rivals = self._routes.rivals(identity.name)
        with self._counted(Limit.ROUTES, connection):
            master = self._routes.register(
                identity,
                registration,
                ha_address=header.ha_server_addr,
                owner=connection,
                now_ms=self._clock.now_ms(),
                epoch=header.master_epoch or 0,
            )
        self._log_rivals(identity, rivals)
        is_taken = self._routes.data_version(identity) is not None
        if is_new and is_taken:
            _log.info("event=broker_registered name=%s id=%d address=%s", identity.name, identity.id, identity.address)
        answer = headers.RegisterBrokerResponseHeader()
        # A RocketMQ master would take an address in the response for that of its own master.
        if master is not None and (is_taken or header.master_epoch is not None):
            epoch = master.epoch or None  # RocketMQ's masters have none, and their slaves read no such field
            answer = headers.RegisterBrokerResponseHeader(master.ha_address, master.address, epoch)
        return command.response(ResponseCode.SUCCESS, header=answer, body=self._order_settings())

    def _log_rivals(self, identity: BrokerIdentity, before: frozenset[str]) -> None:
        """Two masters of one name give the same offsets to different messages: an operator has to know."""
        now = self._routes.rivals(identity.name)
        if now - before:
            kept = self._routes.master_address(identity.name)
            text = "event=two_masters name=%.300s in_routes=%.300s other=%.300s remedy=start_it_as_a_slave"
            self._refusals.log(
                _log,
                text,
                identity.name,
                kept,
                ",".join(sorted(now - before)),
                level=logging.ERROR,
                lines=SETTINGS_LINES,
            )

    @contextmanager
    def _counted(self, limit: Limit, connection: Connection) -> Iterator[None]:
        """Refusals inside are counted."""
        try:
            yield
        except RequestRejected as error:
            self._refusals.note(limit, _log, "event=%s_refused peer=%s reason=%s", limit, connection.address, error)
            raise

    def _order_settings(self) -> bytes:
        """Brokers learn from this which of their topics are globally ordered."""
        table = self._kv.table(ORDER_NAMESPACE)
        return b"" if table is None else encode(KVTable(table))

    def unregister(self, _: Connection, command: Command) -> Command:
        identity = _identity(command.header(headers.UnregisterBrokerHeader))
        self._routes.unregister(identity)
        _log.info("event=broker_gone address=%s reason=unregistered", identity.address)
        return command.response(ResponseCode.SUCCESS)

    def query_data_version(self, _: Connection, command: Command) -> Command:
        identity = _identity(command.header(headers.QueryDataVersionHeader))
        theirs = decode_request(DataVersion, command.body)
        ours = self._routes.data_version(identity)
        if ours == theirs:
            self._routes.renew(identity, self._clock.now_ms())
        answer = headers.QueryDataVersionResponseHeader(changed=ours != theirs)
        return command.response(ResponseCode.SUCCESS, header=answer, body=b"" if ours is None else encode(ours))

    def wipe_write_permission(self, connection: Connection, command: Command) -> Command:
        name = command.header(headers.WipeWritePermOfBrokerHeader).broker_name
        count = self._routes.wipe_write_permission(name)
        _log.info("event=write_permission_wiped broker=%s topics=%d peer=%s", name, count, connection.address)
        return command.response(ResponseCode.SUCCESS, header=headers.WipeWritePermOfBrokerResponseHeader(count))

    def add_write_permission(self, connection: Connection, command: Command) -> Command:
        name = command.header(headers.AddWritePermOfBrokerHeader).broker_name
        count = self._routes.add_write_permission(name)
        _log.info("event=write_permission_added broker=%s topics=%d peer=%s", name, count, connection.address)
        return command.response(ResponseCode.SUCCESS, header=headers.AddWritePermOfBrokerResponseHeader(count))

    # -------------------------------------------------------------------------------------------------------- routes

    def route(self, _: Connection, command: Command) -> Command:
        header = command.header(headers.GetRouteInfoHeader)
        route = self._routes.route(header.topic)
        if route is None:
            return command.response(ResponseCode.TOPIC_NOT_EXIST, _NO_ROUTE.format(header.topic))
        if self.options.order_message_enable:
            route = replace(route, order_topic_conf=self._kv.value(ORDER_NAMESPACE, header.topic))
        # Older clients, and those of other languages, split the raw form textually.
        standard = command.version >= STANDARD_JSON_VERSION or header.accept_standard_json_only
        return command.response(ResponseCode.SUCCESS, body=encode_standard(route) if standard else encode(route))

    def cluster_info(self, _: Connection, command: Command) -> Command:
        return command.response(ResponseCode.SUCCESS, body=encode(self._routes.cluster_info()))

    def topics(self, _: Connection, command: Command) -> Command:
        return _topic_list(command, self._routes.topics())

    def topics_of_cluster(self, _: Connection, command: Command) -> Command:
        cluster = command.header(headers.GetTopicsByClusterHeader).cluster
        return _topic_list(command, self._routes.topics_of_cluster(cluster))

    def system_topics(self, _: Connection, command: Command) -> Command:
        return _topic_list(command, self._routes.system_topics(), self._routes.any_address())

    def unit_topics(self, _: Connection, command: Command) -> Command:
        return self._topics_where(command, is_unit)

    def unit_subscription_topics(self, _: Connection, command: Command) -> Command:
        return self._topics_where(command, has_unit_subscription)

    def unit_subscription_only_topics(self, _: Connection, command: Command) -> Command:
        return self._topics_where(command, lambda flag: has_unit_subscription(flag) and not is_unit(flag))

    def _topics_where(self, command: Command, condition: Callable[[int], bool]) -> Command:
        return _topic_list(command, self._routes.topics_where(condition))

    def delete_topic(self, connection: Connection, command: Command) -> Command:
        header = command.header(headers.DeleteTopicFromNamesrvHeader)
        self._routes.delete_topic(header.topic, header.cluster_name or None)
        _log.info(
            "event=topic_deleted topic=%s cluster=%s peer=%s", header.topic, header.cluster_name, connection.address
        )
        return command.response(ResponseCode.SUCCESS)

    # ------------------------------------------------------------------------------------------------------ settings

    async def put_kv(self, connection: Connection, command: Command) -> Command:
        header = command.header(headers.PutKVConfigHeader)
        with self._counted(Limit.SETTINGS, connection):
            async with self._saving:
                await asyncio.to_thread(self._kv.put, header.namespace, header.key, header.value)
        self._log_change("event=kv_put namespace=%.300s key=%.300s peer=%s", header.namespace, header.key, connection)
        return command.response(ResponseCode.SUCCESS)

    def _log_change(self, text: str, namespace: str, key: str, connection: Connection) -> None:
        """Any client may change settings, at any rate."""
        self._refusals.log(_log, text, namespace, key, connection.address, level=logging.INFO, lines=SETTINGS_LINES)

    def get_kv(self, _: Connection, command: Command) -> Command:
        header = command.header(headers.GetKVConfigHeader)
        value = self._kv.value(header.namespace, header.key)
        answer = headers.GetKVConfigResponseHeader(value)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return command.response(ResponseCode.QUERY_NOT_FOUND, remark, answer)
        return command.response(ResponseCode.SUCCESS, header=answer)

    async def delete_kv(self, connection: Connection, command: Command) -> Command:
        header = command.header(headers.DeleteKVConfigHeader)
        async with self._saving:
            await asyncio.to_thread(self._kv.delete, header.namespace, header.key)
        self._log_change(
            "event=kv_deleted namespace=%.300s key=%.300s peer=%s", header.namespace, header.key, connection
        )
        return command.response(ResponseCode.SUCCESS)

    def list_kv(self, _: Connection, command: Command) -> Command:
        namespace = command.header(headers.GetKVListByNamespaceHeader).namespace
        table = self._kv.table(namespace)
        if table is None:
            return command.response(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return command.response(ResponseCode.SUCCESS, body=encode(KVTable(table)))

    def get_config(self, _: Connection, command: Command) -> Command:
        return command.response(ResponseCode.SUCCESS, body=encode_settings(self.options.pairs()))

    async def update_config(self, connection: Connection, command: Command) -> Command:
        """Change options while running. Unknown keys are ignored, as RocketMQ's tools expect."""
        declared = self.options.table()
        changes = {key: text for key, text in decode_settings(command.body).items() if key in declared}
        fixed = sorted(key for key in changes if not declared[key][1].changeable)
        if fixed:
            raise RequestRejected(ResponseCode.NO_PERMISSION, f"Can not update config: {', '.join(fixed)}")
        if changes:
            async with self._saving:
                self.options = NamesrvOptions.parse({**self.options.pairs(), **changes})
                text = encode_settings(self.options.pairs()).decode()
                await asyncio.to_thread(save_with_backup, self.options.config_store_file, text)
            _log.info("event=config_changed keys=%s peer=%s", ",".join(sorted(changes)), connection.address)
        return command.response(ResponseCode.SUCCESS)


def _identity(
    header: headers.RegisterBrokerHeader | headers.UnregisterBrokerHeader | headers.QueryDataVersionHeader,
) -> BrokerIdentity:
    return BrokerIdentity(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr)


def _registration(command: Command, known: DataVersion | None, *, compressed: bool) -> BrokerRegistration:
    """The registration of the broker; its topics are not read when their version is known already."""
    if known is not None:
        head = decode_head(command.body, compressed=compressed)
        if head is not None and head.topic_table.data_version == known:
            return head
    if command.version >= REGISTRATION_BODY_VERSION:
        return decode_registration(command.body, compressed=compressed)
    return BrokerRegistration(topic_table=decode_request(TopicTable, command.body) if command.body else TopicTable())


def _topic_list(command: Command, topics: list[str], address: str | None = None) -> Command:
    return command.response(ResponseCode.SUCCESS, body=encode(TopicList(broker_addr=address, topic_list=topics)))
