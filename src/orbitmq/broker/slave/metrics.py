"""How replication goes: orbitmq's own keys in the broker's runtime table."""

from __future__ import annotations

from orbitmq.broker.roles import MasterRole, Role
from orbitmq.replication.master import Replicas
from orbitmq.store.engine import MessageStore


def replication_metrics(store: MessageStore, replicas: Replicas, role: Role) -> dict[str, str]:
    """Of a master its slaves and how many bytes the nearest lacks, and what it knows of other masters of its name; of a
    slave its master and what it knows of it.
    """
    slaves = sorted(link.address for link in replicas.links)
    metrics: dict[str, str] = {}
    if slaves:
        behind = store.commit_log_max_offset - max(link.acknowledged for link in replicas.links)
        metrics |= {"replicationSlaves": ",".join(slaves), "replicationSlaveBytesBehind": str(behind)}
    if isinstance(role, MasterRole):
        watch, refused = role.watch, role.watch.refused_slaves
        metrics |= {
            "replicationEpoch": str(watch.epoch),
            "replicationSupersededBy": watch.superseded,
            "replicationOtherMasters": "; ".join(f"{at}: {one.words}" for at, one in sorted(watch.others.items())),
            "replicationOtherMastersServing": str(sum(one.serves for one in watch.others.values())),
            "replicationRefusedSlaves": "; ".join(f"{at}: {reason}" for at, reason in sorted(refused.items())),
        }
    else:
        state = role.following.state
        metrics |= {
            "replicationMaster": state.master,
            "replicationConnected": str(state.is_connected).lower(),
            "replicationMasterEnd": str(state.master_end),
            "replicationTablesCopied": str(state.tables_at is not None).lower(),
            "replicationRefusal": state.refusal,
            "replicationNotServing": role.not_serving,
        }
    return metrics
