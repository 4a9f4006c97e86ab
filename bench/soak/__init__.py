"""A cluster under faults (`make soak`): what happens to it, what its clients saw, and whether every promise was kept.

`history` has the nouns, `checker` judges them without I/O, `disks` reads what the brokers have left; `plan` draws the
faults, `cluster` and `links` do them, `load` sends and consumes meanwhile, `campaign` has all of it work together.

Without faults, `steady` keeps a broker at half of its peak for an hour, with the clients of `steady_load`; `judge` says
whether anything was lost or has grown.
"""
