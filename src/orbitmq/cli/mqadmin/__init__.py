"""`orbitmq mqadmin NAME ...`: the commands of RocketMQ's own tool by their names, letters and printed form, so that
scripts move unchanged; but a command that fails ends with a code that says so.
"""
