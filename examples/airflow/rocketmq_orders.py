"""Messages in Airflow 3.3: one DAG sends orders, waits for one and bills what is there; another one starts on messages.

It needs `pip install 'orbitmq[airflow]'`, a broker of orbitmq or RocketMQ 5, and the connection `rocketmq_default`:

    airflow connections add rocketmq_default --conn-type rocketmq --conn-host 127.0.0.1 --conn-port 9876
    airflow dags test rocketmq_orders
"""

from __future__ import annotations

import json
from typing import Any

from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, Asset, AssetWatcher, chain

from orbitmq.client import MessageExt
from orbitmq.integrations.airflow.operators import ConsumeOperator, ProduceOperator
from orbitmq.integrations.airflow.sensors import AwaitMessageSensor

ORDERS = "ExampleAirflowOrders"
PAYMENTS = "ExampleAirflowPayments"


def new_orders(count: int) -> list[dict[str, Any]]:
    return [{"id": f"O-{number}", "total": 9.9 * number} for number in range(1, count + 1)]


def bill(order: MessageExt) -> None:
    """An exception fails the task: its next try begins with this order."""
    print(f"billed {json.loads(order.body)['id']}")


def book(triggering_asset_events: Any) -> None:
    for event in triggering_asset_events[payments]:
        print(f"booked {event.extra['payload']['body']}")


with DAG("rocketmq_orders", schedule=None, max_active_runs=1, tags=["orbitmq"]):  # one run a time: one reader a group
    chain(
        ProduceOperator(
            task_id="send",
            topic=ORDERS,
            producer_function=new_orders,
            producer_function_kwargs={"count": 3},
            tags="new",
        ),
        AwaitMessageSensor(task_id="wait", topics=ORDERS, group="example-airflow-alerts", timeout=300),
        ConsumeOperator(task_id="bill", topics=ORDERS, group="example-airflow-billing", apply_function=bill),
    )

arriving = MessageQueueTrigger(scheme="rocketmq", topics=PAYMENTS, group="example-airflow-payments")
payments = Asset("rocketmq_payments", watchers=[AssetWatcher(name="payments", trigger=arriving)])

with DAG("rocketmq_payments", schedule=[payments], tags=["orbitmq"]):
    PythonOperator(task_id="book", python_callable=book)
