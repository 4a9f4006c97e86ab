"""`orbitmq mqadmin NAME ...`: the commands of RocketMQ's own tool with the same names, options and output, so that
scripts work unchanged; but a command that fails sets its exit code."""
