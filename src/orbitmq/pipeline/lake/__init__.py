"""The lake: archived messages as Parquet files, and the ways to publish them. Knows neither Spark nor brokers."""
