"""Airflow DAGs that run the jobs in the engine's own environment; nothing but Airflow and PyYAML is needed here."""
