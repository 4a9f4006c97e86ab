"""Spark jobs over topics, stores and the lake. Run them with `orbitmq pipeline NAME` or with spark-submit."""
