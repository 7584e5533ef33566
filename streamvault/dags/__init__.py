"""Workflows, to be copied into a folder that Airflow reads (docs/guide/airflow.md)."""
