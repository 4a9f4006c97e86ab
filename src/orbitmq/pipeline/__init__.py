"""Jobs over topics, stores and the lake, run by Spark: `orbitmq pipeline NAME`, or by spark-submit."""
