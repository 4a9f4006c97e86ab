"""How replication goes, in figures for operators: orbitmq's own keys in the broker's runtime table."""

from __future__ import annotations

from orbitmq.replication.master import Replicas
from orbitmq.replication.slave import Following
from orbitmq.store.engine import MessageStore


def replication_figures(store: MessageStore, replicas: Replicas, following: Following | None) -> dict[str, str]:
    """Of a master its slaves and how many bytes the nearest lacks; of a slave its master and what it knows of it.
    A broker without either has none.
    """
    slaves = sorted(link.address for link in replicas.links)
    figures: dict[str, str] = {}
    if slaves:
        behind = store.commit_log_max_offset - max(link.acknowledged for link in replicas.links)
        figures |= {"replicationSlaves": ",".join(slaves), "replicationSlaveBytesBehind": str(behind)}
    if following is not None:
        state = following.state
        figures |= {
            "replicationMaster": state.master,
            "replicationConnected": str(state.is_connected).lower(),
            "replicationMasterEnd": str(state.master_end),
            "replicationRefusal": state.refusal,
        }
    return figures
