"""Places where functions run: in this process, or in Spark tasks."""
