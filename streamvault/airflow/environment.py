"""Changes to the worker's environment, for a command or for work in a task's own process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow.sdk.exceptions import AirflowFailException

from streamvault.scopes.entries import parse_flag


def changed(before: Mapping[str, str], variables: Mapping[str, str | None]) -> dict[str, str]:
    """Return an environment with some variables set; None unsets one."""
    after: dict[str, str | None] = {**before, **variables}
    return {name: value for name, value in after.items() if value is not None}


@contextmanager
def environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables within a ``with`` block; None unsets one. Not thread-safe."""
    before = dict(os.environ)
    after = changed(before, variables)
    try:
        os.environ.clear()
        os.environ.update(after)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


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
