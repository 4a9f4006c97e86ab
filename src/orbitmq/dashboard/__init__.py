"""The web page over `admin/`: what a cluster is doing, where a message is, why nothing is consumed, changes.

Pages are made on the server. What they ask and how they change something stands in `admin/`; here is who may see it,
how it looks, and nothing else.
"""
