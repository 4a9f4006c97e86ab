"""Requests from one node to another: one coroutine per request code, shared by broker, client and admin.

Each coroutine builds its request, sends it through `orbitmq.net.remoting.Remoting`, and returns a typed result. A
response code that means failure raises BrokerError with code, remark and address. Callers do retries, routes and
caches.
"""
