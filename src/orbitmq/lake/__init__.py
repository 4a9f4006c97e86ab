"""The lake: archived messages as Parquet files, and the table formats that publish them. Knows no Spark or brokers."""
