"""What one node asks another: one small coroutine a request code, shared by broker, client and admin.

Each builds its request, sends it through `orbitmq.net.remoting.Remoting`, and returns a typed result. A response code
that means failure raises BrokerError with code, remark and address. Retries, routes and caches are the callers'.
"""
