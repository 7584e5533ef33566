"""Operators: one for each command that does something, and one that waits for cold storage."""

from __future__ import annotations

try:
    from streamvault.airflow.operators.verbs import *  # noqa: F403  (its __all__)
    from streamvault.airflow.operators.verbs import __all__ as __all__
except ModuleNotFoundError as missing:
    if not (missing.name or "").startswith("airflow"):
        raise
    # Airflow shows it as the DAG's import error
    text = f"Streamvault's operators require its extra airflow: pip install 'streamvault[airflow]' ({missing})"
    raise ImportError(text) from None
