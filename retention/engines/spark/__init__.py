"""Functions in Spark tasks, and everything else that knows Spark; nothing outside imports pyspark."""
