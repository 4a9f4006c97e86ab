"""Django: an outbox by its models, producers for WSGI and ASGI, and commands that run the relay and a worker."""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.core.wsgi import get_wsgi_application
from django.db import connection, models, transaction
from django.http import HttpRequest, JsonResponse
from django.test import Client
from django.urls import path
from sqlalchemy import Engine, create_engine
from starlette.applications import Starlette
from starlette.routing import Mount

from orbitmq.client import BrokerError, ClientError, Message, MessageExt, Producer, RemotingError, run_worker, sync
from orbitmq.client.idempotent import serialised_sqlite
from orbitmq.integrations.outbox import OutboxTable, run_relay

TOPIC = "ExampleDjango"
DATABASE = os.environ.get("SHOP_DATABASE") or str(Path(tempfile.mkdtemp()) / "shop.db")

settings.configure(  # yours are in settings.py
    SECRET_KEY="example", ALLOWED_HOSTS=["127.0.0.1", "testserver"], ROOT_URLCONF=__name__,
    DATABASES={"default": {
        "ENGINE": "django.db.backends.sqlite3", "NAME": DATABASE,
        "OPTIONS": {"timeout": 30, "transaction_mode": "IMMEDIATE"},
    }},
    ORBITMQ={"namesrv_addr": os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876"), "send_timeout_ms": 2000},
)  # fmt: skip
django.setup()


# ------------------------------------------------------------------------------------------------------- models.py


class Order(models.Model):
    number = models.CharField(max_length=50, unique=True)

    class Meta:
        app_label = "shop"


class OutboxMessage(models.Model):
    """The columns of `OutboxTable().table`."""

    id = models.BigAutoField(primary_key=True)
    topic = models.CharField(max_length=127)
    sharding_key = models.CharField(max_length=255, null=True)
    body = models.BinaryField()
    flag = models.IntegerField()
    properties = models.TextField()
    created_ms = models.BigIntegerField()
    attempts = models.IntegerField()
    next_ms = models.BigIntegerField()
    error = models.CharField(max_length=500, null=True)

    class Meta:
        app_label = "shop"
        db_table = "orbitmq_outbox"
        indexes = (models.Index(fields=["topic", "sharding_key", "id"], name="orbitmq_outbox_order"),)


class OutboxLease(models.Model):
    """The columns of `OutboxTable().lease`."""

    id = models.IntegerField(primary_key=True)
    holder = models.CharField(max_length=32)
    until_ms = models.BigIntegerField()

    class Meta:
        app_label = "shop"
        db_table = "orbitmq_outbox_lease"


# -------------------------------------------------------------------------------------------------------- views.py


outbox = OutboxTable()
starting = threading.Lock()
UNAVAILABLE = (BrokerError, ClientError, RemotingError)


def unavailable() -> JsonResponse:
    return JsonResponse({"detail": "try again later"}, status=503, headers={"Retry-After": "5"})


def place(request: HttpRequest) -> JsonResponse:
    """The order and its message are committed together or not at all, whether a broker is there or not."""
    order = json.loads(request.body)
    message = Message(TOPIC, request.body, tags="placed", keys=order["number"])
    with transaction.atomic():
        Order.objects.create(number=order["number"])
        OutboxMessage.objects.create(**outbox.row(message, sharding_key=order["number"]))
        if order["item"] == "nothing":
            transaction.set_rollback(True)
            return JsonResponse({"detail": "an order of nothing"}, status=422)
    return JsonResponse({"number": order["number"]}, status=201)


@functools.cache
def started_producer() -> sync.Producer:
    producer = sync.Producer("example-django", **settings.ORBITMQ)
    producer.start()
    atexit.register(producer.shutdown)
    return producer


os.register_at_fork(after_in_child=started_producer.cache_clear)  # a started client does not work in a child


def click(request: HttpRequest) -> JsonResponse:
    """Responds when a broker has stored the message, or after `send_timeout_ms`."""
    with starting:  # threads of a process share one producer
        producer = started_producer()
    try:
        result = producer.send(Message("ExampleDjangoClicks", request.body or b"home"))
    except UNAVAILABLE:
        return unavailable()
    return JsonResponse({"id": result.msg_id, "process": os.getpid()}, status=202)


async def click_asynchronously(request: HttpRequest) -> JsonResponse:
    """The same with ASGI, by the producer of `lifespan`."""
    try:
        result = await request.scope["state"]["producer"].send(Message("ExampleDjangoClicks", request.body or b"home"))
    except UNAVAILABLE:
        return unavailable()
    return JsonResponse({"id": result.msg_id}, status=202)


urlpatterns = [path("orders", place), path("clicks", click), path("asynchronous/clicks", click_asynchronously)]


# ----------------------------------------------------------------------------------------------- wsgi.py, asgi.py


application = get_wsgi_application()


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[dict[str, Producer]]:
    """Django has none, so Starlette opens and closes the producer, and passes requests on."""
    async with Producer("example-django-asgi", **settings.ORBITMQ) as producer:
        yield {"producer": producer}


asgi_application = Starlette(routes=[Mount("/", get_asgi_application())], lifespan=lifespan)


# -------------------------------------------------------------------------- management/commands/relay.py, worker.py


def engine() -> Engine:
    """The database of the application for the relay. PostgreSQL: `postgresql+psycopg://user:secret@host/shop`."""
    return serialised_sqlite(create_engine(f"sqlite:///{DATABASE}?timeout=30"))


class Relay(BaseCommand):
    help = "Send the messages of the outbox until SIGTERM."

    def handle(self, *arguments: object, **options: object) -> None:
        run_relay(engine(), "example-django-relay", outbox=outbox, **settings.ORBITMQ)


def bill(message: MessageExt) -> None:
    print(f"{message.keys} is billed", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)  # as systemd and Kubernetes do; here the example is over


class Worker(BaseCommand):
    help = "Bill orders until SIGTERM."

    def handle(self, *arguments: object, **options: object) -> None:
        namesrv_addr = settings.ORBITMQ["namesrv_addr"]
        sys.exit(run_worker(bill, "example-django-billing", namesrv_addr, topic=TOPIC, concurrency=4))


# -------------------------------------------------------------------------------------------------------------------


def create_tables() -> None:
    """Yours are made by migrations."""
    with connection.schema_editor() as editor:
        for model in (Order, OutboxMessage, OutboxLease):
            editor.create_model(model)


def stop_when_sent() -> None:
    with serialised_sqlite(create_engine(f"sqlite:///{DATABASE}?timeout=30")).connect() as connected:
        while connected.exec_driver_sql("select count(*) from orbitmq_outbox").scalar():
            connected.rollback()
            time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    create_tables()
    client = Client()
    print(f"click: {client.post('/clicks').status_code}")
    for number, item in (("O-1", "kettle"), ("O-2", "nothing")):
        response = client.post("/orders", {"number": number, "item": item}, content_type="application/json")
        print(f"order {number}: {response.status_code}")
    print(f"waiting in the outbox: {OutboxMessage.objects.count()}")
    threading.Thread(target=stop_when_sent).start()
    call_command(Relay())
    print(f"after the relay: {OutboxMessage.objects.count()}")
    call_command(Worker())


if __name__ == "__main__":
    main()
