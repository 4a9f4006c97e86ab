"""Administration of a whole cluster: queries and changes, on top of `operations`.

Every result names the nodes that did not respond, and never shows a smaller number instead. Knows no command line and
no page: both are built on it.
"""
