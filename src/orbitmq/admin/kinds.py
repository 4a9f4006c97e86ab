"""The kinds of answers: what `kind` says in their JSON, and of which items they are made; the published schemas come
from this table. Must not know which command or page gives them.
"""

from __future__ import annotations

from importlib import import_module

# Kind -> module and class of its items.
KINDS = {
    "ContextList": "orbitmq.admin.contexts:NamedCluster",
    "Plan": "orbitmq.admin.plans:Step",
}


def item_of(kind: str) -> type:
    """The class of the items of a kind."""
    module, _, name = KINDS[kind].partition(":")
    item: type = getattr(import_module(module), name)
    return item
