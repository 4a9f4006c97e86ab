"""Calls of the messaging service with any content, with the messages of the official Python client.

Asked and answering in lines of JSON, as driver.py is; messages are protobuf's JSON, with the field names of the .proto
files. An RPC that fails is an error whose kind is RpcError and whose message begins with the name of the gRPC status.

| do | fields, * required | result |
|---|---|---|
| call | endpoints*, method*, request*, metadata, timeout_s | the response; a list of them from ReceiveMessage |
| open | endpoints*, metadata | the number of a new Telemetry stream |
| write | stream*, command* | |
| read | stream*, timeout_s | the next command of the server, null at the end of the stream |
| close | stream* | |
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict
from rocketmq.grpc_protocol import service_pb2, service_pb2_grpc

TIMEOUT_S = 45
OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
STREAMING = ("ReceiveMessage", "PullMessage")
END = object()

channels = {}
streams = {}
numbers = count()
printing = threading.Lock()


def show(row):
    with printing:
        print(json.dumps(row), flush=True)


def stub(endpoints):
    if endpoints not in channels:
        channels[endpoints] = grpc.insecure_channel(endpoints, OPTIONS)
    return service_pb2_grpc.MessagingServiceStub(channels[endpoints])


def as_json(message):
    return MessageToDict(message, preserving_proto_field_name=True)


def call(endpoints, method, request, metadata=(), timeout_s=TIMEOUT_S):
    kind = getattr(service_pb2, f"{method}Request")
    asked = ParseDict(request, kind())
    answer = getattr(stub(endpoints), method)(asked, timeout=timeout_s, metadata=list(dict(metadata).items()))
    return [as_json(one) for one in answer] if method in STREAMING else as_json(answer)


class Stream:
    """A Telemetry stream."""

    def __init__(self, endpoints, metadata):
        self.writing = queue.SimpleQueue()
        self.reading = queue.SimpleQueue()
        self.call = stub(endpoints).Telemetry(iter(self.writing.get, END), metadata=list(metadata.items()))
        threading.Thread(target=self.read_on, daemon=True).start()

    def read_on(self):
        try:
            for command in self.call:
                self.reading.put(as_json(command))
            self.reading.put(None)
        except grpc.RpcError as error:
            self.reading.put(error)


def open_stream(endpoints, metadata=()):
    number = next(numbers)
    streams[number] = Stream(endpoints, dict(metadata))
    return number


def write(stream, command):
    streams[stream].writing.put(ParseDict(command, service_pb2.TelemetryCommand()))


def read(stream, timeout_s=10):
    found = streams[stream].reading.get(timeout=timeout_s)
    if isinstance(found, Exception):
        raise found
    return found


def close(stream):
    streams[stream].writing.put(END)


COMMANDS = {"call": call, "open": open_stream, "write": write, "read": read, "close": close}


def obey(number, do, arguments):
    try:
        show({"id": number, "result": COMMANDS[do](**arguments)})
    except grpc.RpcError as error:
        message = f"{error.code().name} {error.details()}"
        show({"id": number, "error": {"kind": "RpcError", "code": None, "message": message}})
    except Exception as error:
        show({"id": number, "error": {"kind": type(error).__name__, "code": None, "message": repr(error)}})


if __name__ == "__main__":
    pool = ThreadPoolExecutor(64)
    for line in sys.stdin:
        asked = json.loads(line)
        pool.submit(obey, asked.pop("id"), asked.pop("do"), asked)
    os._exit(0)
