"""DAGs of `test_airflow_provider`."""

from __future__ import annotations

import os
from pathlib import Path

from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from airflow.sdk import DAG, Asset, AssetWatcher, chain

from orbitmq.client import MessageExt
from orbitmq.integrations.airflow.operators import ConsumeOperator, ProduceOperator
from orbitmq.integrations.airflow.sensors import AwaitMessageSensor

NOTES = Path(os.environ["ORBITMQ_NOTES"])


def note(message: MessageExt, name: str) -> None:
    """One line for each call; a message `bad` fails once."""
    with (NOTES / name).open("a") as notes:
        notes.write(f"{message.body.decode()}\n")
    if message.body == b"bad" and not (NOTES / "failed").exists():
        (NOTES / "failed").touch()
        raise ValueError("bad")


def note_batch(messages: list[MessageExt], name: str) -> None:
    with (NOTES / name).open("a") as notes:
        notes.write(f"{' '.join(message.body.decode() for message in messages)}\n")


with DAG("consume", schedule=None):
    ConsumeOperator(
        task_id="one",
        topics="Failing",
        group="failing",
        apply_function=note,
        apply_function_args=["one"],
        expression="wanted",
    )

with DAG("batches", schedule=None):
    ConsumeOperator(
        task_id="all",
        topics=["Batches"],
        group="batches",
        apply_function_batch=note_batch,
        apply_function_kwargs={"name": "batches"},
        max_messages=5,
        max_batch_size=2,
    )

with DAG("await", schedule=None):
    chain(
        ProduceOperator(
            task_id="send",
            topic="Awaited",
            messages=["{{ dag.dag_id }}", "second"],
            keys="{{ dag.dag_id }}-key",
            properties={"color": "red"},
            delay="0.5",
        ),
        AwaitMessageSensor(task_id="wait", topics="Awaited", group="awaiting", timeout=60, visibility_timeout=3600),
        ProduceOperator(task_id="result", topic="Results", messages="{{ ti.xcom_pull(task_ids='wait') | tojson }}"),
    )

watched = MessageQueueTrigger(scheme="rocketmq", topics="Watched", group="watching", visibility_timeout=5)
picked = MessageQueueTrigger(
    scheme="rocketmq",
    topics="Picked",
    group="picking",
    apply_function="checks.pick",
    apply_function_kwargs={"path": str(NOTES)},
)
assets = [
    Asset("watched", watchers=[AssetWatcher(name="watched", trigger=watched)]),
    Asset("picked", watchers=[AssetWatcher(name="picked", trigger=picked)]),
]
with DAG("watch", schedule=assets):
    ConsumeOperator(task_id="none", topics="Watched", group="unused", apply_function=note, apply_function_args=["none"])
