"""orbitmq inside the frameworks that Python teams use. Each one needs its extra, such as `orbitmq[celery]`.

orbitmq.integrations.airflow      provider of Airflow
orbitmq.integrations.celery       broker of Celery, transport of kombu
orbitmq.integrations.faststream   broker of FastStream
orbitmq.integrations.outbox       messages in the database of the application, sent when its transaction has committed
orbitmq.integrations.taskiq       broker of taskiq
"""
