"""Booleans of operators, DAG lists and connections, which are texts if they were templates."""

from __future__ import annotations

from typing import Annotated, Any

from airflow.sdk.exceptions import AirflowFailException
from pydantic import BeforeValidator

_VALUES = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def parse_flag(value: Any) -> bool:
    """Convert a boolean, 1 or 0, or one of the texts true, yes, on, 1, false, no, off and 0, in any case.

    Raises:
        ValueError: it is anything else: a misspelt ``true`` must not turn something off.
    """
    known = _VALUES.get(str(value).strip().lower()) if isinstance(value, bool | int | str) else None
    if known is None:
        raise ValueError(f"{value!r} is not true, false, yes, no, on, off, 1 or 0")
    return known


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


Flag = Annotated[bool, BeforeValidator(parse_flag)]
"""A boolean in a declared list."""
