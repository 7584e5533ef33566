"""Schedules of the DAGs, from the environment where DAGs are parsed."""

from __future__ import annotations

import os
from datetime import timedelta

from streamvault.common.times import parse_duration


def schedule_from(variable: str, default: str) -> str | timedelta:
    """Return the schedule in an environment variable: a cron expression or preset, or an interval such as ``15m``."""
    text = os.environ.get(variable, default).strip()
    try:
        return timedelta(seconds=parse_duration(text))
    except ValueError:
        return text
