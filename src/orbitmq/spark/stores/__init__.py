"""Store directories as DataFrames: the Spark data source `orbitmq-store`. Knows files, not the network."""
