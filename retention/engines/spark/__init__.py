"""Functions in Spark tasks, and everything else that depends on Spark; no other package imports pyspark."""
