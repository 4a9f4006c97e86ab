"""What a consumer wants of a topic, as an application says it: tags, or a SQL92 expression. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.errors import MessageIllegal
from orbitmq.filter.tags import tag_subscription
from orbitmq.message.config import SQL92, TAG, SubscriptionData


@dataclass(frozen=True)
class MessageSelector:
    """Made by `tag` or `sql`. Brokers filter by SQL only where `enablePropertyFilter` is on."""

    expression: str
    """As it was given."""
    kind: str = TAG
    """TAG or SQL92."""

    @classmethod
    def tag(cls, expression: str) -> MessageSelector:
        """Messages whose tag is one of `TagA || TagB`; `*` for all. A plain text means the same."""
        return cls(expression)

    @classmethod
    def sql(cls, expression: str) -> MessageSelector:
        """Messages whose properties make a SQL92 expression true: `color = 'red' AND price > 100`. MessageIllegal for
        an empty one; what is wrong with another is told by the broker when the consumer starts."""
        given: object = expression
        if not isinstance(given, str):
            raise MessageIllegal(f"an SQL92 expression must be text, not {type(given).__name__}")
        if not expression.strip():
            raise MessageIllegal("an SQL92 expression is empty")
        return cls(expression, SQL92)

    def subscription(self, topic: str, version: int = 0) -> SubscriptionData:
        """What brokers are told. MessageIllegal for a tag expression that names no tag."""
        if self.kind == TAG:
            return tag_subscription(topic, self.expression, version)
        return SubscriptionData(topic, self.expression, version=version, expression_type=self.kind)


Selector = MessageSelector | str
"""What a consumer wants of a topic; a text is a tag expression."""


def subscription_of(topic: str, selector: Selector, version: int = 0) -> SubscriptionData:
    """The subscription of a selector; a text is a tag expression."""
    chosen = MessageSelector.tag(selector) if isinstance(selector, str) else selector
    return chosen.subscription(topic, version)
