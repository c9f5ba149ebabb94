"""Airflow DAGs that run the jobs; they import nothing of this project but its configuration."""
