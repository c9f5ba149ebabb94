"""Airflow DAGs that run the jobs in the engine's own environment; this package needs only Airflow and PyYAML."""
