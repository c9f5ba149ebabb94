"""Ingestion into a topic: batches, DataFrames, and the logs of an Iggy server."""
