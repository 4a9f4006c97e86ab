"""orbitmq and Apache RocketMQ in Airflow 3.3 and later (`orbitmq[airflow]`): a provider, which Airflow finds by itself.

orbitmq.integrations.airflow.hooks       RocketMQHook: clients for a connection of the type `rocketmq`
orbitmq.integrations.airflow.operators   ProduceOperator, ConsumeOperator
orbitmq.integrations.airflow.sensors     AwaitMessageSensor, which waits in the triggerer
orbitmq.integrations.airflow.triggers    AwaitMessageTrigger, for tasks and for watchers of assets
orbitmq.integrations.airflow.queues      what makes it `MessageQueueTrigger(scheme="rocketmq", ...)`
"""
