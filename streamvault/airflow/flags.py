"""Booleans of operators and connections, which are texts if they were templates."""

from __future__ import annotations

from typing import Any

from airflow.sdk.exceptions import AirflowFailException

from streamvault.scopes.entries import parse_flag


def flag(name: str, value: Any) -> bool:
    """Return the value of an operator's argument.

    Args:
        name: the argument's name.
        value: as for `parse_flag`.

    Raises:
        AirflowFailException: it is not a boolean.
    """
    try:
        return parse_flag(value)
    except ValueError as error:
        raise AirflowFailException(f"{name}: {error}") from None
