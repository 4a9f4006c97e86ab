"""Declarations of subscribers and publishers, at a broker or at a router that a broker includes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Unpack, cast

from faststream._internal.broker.registrator import Registrator
from faststream._internal.broker.router import ArgsContainer, BrokerRouter, SubscriberRoute
from faststream._internal.constants import EMPTY

from orbitmq.integrations.faststream.config import RocketMQBrokerConfig
from orbitmq.integrations.faststream.message import Raw
from orbitmq.integrations.faststream.options import PublisherOptions, RouterOptions, SubscriberOptions
from orbitmq.integrations.faststream.publisher import (
    RocketMQPublisher,
    RocketMQPublisherConfig,
    RocketMQPublisherSpecification,
)
from orbitmq.integrations.faststream.publisher import TopicSpecificationConfig as PublisherTopic
from orbitmq.integrations.faststream.subscriber import (
    Calls,
    RocketMQSubscriber,
    RocketMQSubscriberConfig,
    RocketMQSubscriberSpecification,
)
from orbitmq.integrations.faststream.subscriber import TopicSpecificationConfig as SubscriberTopic


class RocketMQRegistrator(Registrator[Raw, RocketMQBrokerConfig]):
    """What brokers and routers have in common."""

    def subscriber(  # type: ignore[override]
        self, topic: str, **options: Unpack[SubscriberOptions]
    ) -> RocketMQSubscriber:
        """Have a function handle the messages of a topic:

        @broker.subscriber("orders", group="billing")
        async def bill(order: Order) -> None: ...
        """
        given: dict[str, Any] = dict(options)
        call = {f"{name}_": given.pop(name, None) for name in ("parser", "decoder", "codec")}
        call["parser_"] = call["parser_"] or self._parser
        call["decoder_"] = call["decoder_"] or self._decoder
        dependencies = given.pop("dependencies", ())
        persistent = given.pop("persistent", True)
        documented = _documented(given)
        policy = given.pop("ack_policy", EMPTY)
        outer = cast("RocketMQBrokerConfig", self.config)
        calls = Calls()
        subscriber = RocketMQSubscriber(
            RocketMQSubscriberConfig(topic=topic, _outer_config=outer, _ack_policy=policy, **given),
            RocketMQSubscriberSpecification(outer, SubscriberTopic(topic=topic, **documented), calls),
            calls,
        )
        super().subscriber(subscriber, persistent=persistent)
        return subscriber.add_call(dependencies_=dependencies, **call)

    def publisher(  # type: ignore[override]
        self, topic: str, **options: Unpack[PublisherOptions]
    ) -> RocketMQPublisher:
        """Send what a handler returns to a topic; or what you `publish` with the object that this returns:

        @broker.publisher("invoices")
        @broker.subscriber("orders")
        async def bill(order: Order) -> Invoice: ...
        """
        given: dict[str, Any] = dict(options)
        persistent = given.pop("persistent", True)
        documented = {**_documented(given), "schema_": given.pop("schema", None)}
        given["headers"] = given.pop("headers", None) or {}
        outer = cast("RocketMQBrokerConfig", self.config)
        publisher = RocketMQPublisher(
            RocketMQPublisherConfig(topic=topic, _outer_config=outer, **given),
            RocketMQPublisherSpecification(outer, PublisherTopic(topic=topic, **documented)),
        )
        super().publisher(publisher, persistent=persistent)
        return publisher

    def include_router(self, router: Registrator[Any, Any], **options: Any) -> None:
        """Have the subscribers and publishers of a router. TypeError for one of another broker."""
        if not isinstance(router, RocketMQRegistrator):
            raise TypeError(f"a {type(router).__name__} is not for RocketMQ: use a RocketMQRouter")
        super().include_router(router, **options)


def _documented(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "title_": given.pop("title", None),
        "description_": given.pop("description", None),
        "include_in_schema": given.pop("include_in_schema", True),
    }


def configured(options: RouterOptions) -> dict[str, Any]:
    """The fields of a configuration for what routers and brokers have in common."""
    return {
        "broker_dependencies": options.get("dependencies", ()),
        "broker_middlewares": options.get("middlewares", ()),
        "broker_parser": options.get("parser"),
        "broker_decoder": options.get("decoder"),
        "broker_codec": options.get("codec"),
        "ack_policy": options.get("ack_policy", EMPTY),
    }


class RocketMQPublish(ArgsContainer):
    """A publisher of a `RocketMQRoute`; the arguments are those of `publisher`."""

    def __init__(self, topic: str, **options: Unpack[PublisherOptions]) -> None:
        super().__init__(topic, **options)


class RocketMQRoute(SubscriberRoute):
    """A subscriber of a router, with its function; the arguments are those of `subscriber`."""

    def __init__(
        self,
        call: Callable[..., Any] | Callable[..., Awaitable[Any]],
        topic: str,
        *,
        publishers: Iterable[RocketMQPublish] = (),
        **options: Unpack[SubscriberOptions],
    ) -> None:
        super().__init__(call, topic, publishers=publishers, **options)


class RocketMQRouter(RocketMQRegistrator, BrokerRouter[Raw, RocketMQBrokerConfig]):
    """Subscribers and publishers for a broker that includes it. `prefix` goes before their topics."""

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[RocketMQRoute] = (),
        *,
        routers: Iterable[RocketMQRegistrator] = (),
        include_in_schema: bool | None = None,
        **options: Unpack[RouterOptions],
    ) -> None:
        config = RocketMQBrokerConfig(prefix=prefix, include_in_schema=include_in_schema, **configured(options))
        super().__init__(config=config, handlers=handlers, routers=routers)
