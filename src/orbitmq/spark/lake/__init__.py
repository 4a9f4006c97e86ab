"""The data source `orbitmq-lake`: archived messages as rows; and the history of a topic from lake and brokers."""
