"""The web page on top of `admin/`: the state of a cluster, where a message is, why nothing is consumed, and changes.

Pages are rendered on the server. Their queries and changes are those of `admin/`; this package decides who may see a
page and how it looks, and nothing else.
"""
