"""The filter of a subscription: tags, or a SQL92 expression. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.errors import MessageIllegal
from orbitmq.filter.tags import tag_subscription
from orbitmq.message.config import SQL92, TAG, SubscriptionData


@dataclass(frozen=True)
class MessageSelector:
    """A filter; create it with `tag` or `sql`. Brokers filter by SQL only if `enablePropertyFilter` is on."""

    expression: str
    """The expression."""
    kind: str = TAG
    """TAG or SQL92."""

    @classmethod
    def tag(cls, expression: str) -> MessageSelector:
        """Messages whose tag is one of `TagA || TagB`; `*` for all. Plain text means the same."""
        return cls(expression)

    @classmethod
    def sql(cls, expression: str) -> MessageSelector:
        """Messages whose properties satisfy a SQL92 expression: `color = 'red' AND price > 100`. MessageIllegal for an
        empty one; the broker checks the expression when the consumer starts.
        """
        given: object = expression
        if not isinstance(given, str):
            raise MessageIllegal(f"an SQL92 expression must be text, not {type(given).__name__}")
        if not expression.strip():
            raise MessageIllegal("an SQL92 expression is empty")
        return cls(expression, SQL92)

    def subscription(self, topic: str, version: int = 0) -> SubscriptionData:
        """The subscription that is sent to brokers. MessageIllegal for a tag expression that names no tag."""
        if self.kind == TAG:
            return tag_subscription(topic, self.expression, version)
        return SubscriptionData(topic, self.expression, version=version, expression_type=self.kind)


Selector = MessageSelector | str
"""The filter of a subscription; text is a tag expression."""


def subscription_of(topic: str, selector: Selector, version: int = 0) -> SubscriptionData:
    """The subscription of a selector; text is a tag expression."""
    chosen = MessageSelector.tag(selector) if isinstance(selector, str) else selector
    return chosen.subscription(topic, version)
