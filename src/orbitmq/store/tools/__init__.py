"""Tools for store directories: verify, dump and rebuild. They run without a broker; only `rebuild` writes.

verify      whether a directory is sound            findings    what is wrong with it, and how bad that is
log_scan    walks the commit log past damage        dump        messages as plain values
queue_check consume queues against the log          index_check the key index against the log
rebuild     queues and index anew from the log      portions    its work, cut for several processes
"""
