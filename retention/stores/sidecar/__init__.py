"""Disposable files beside a table: statistics, subject digests, inventories, the next due instant."""
