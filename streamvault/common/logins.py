"""Whether tasks on executors are sent the logins of this process, or have logins of their own."""

from __future__ import annotations

import os

from streamvault.common.errors import Usage

VARIABLE = "STREAMVAULT_SEND_LOGINS"
"""Environment variable: with ``no``, executors have logins of their own, in their environment."""


def are_sent() -> bool:
    """Return whether addresses for tasks contain the logins that this process has.

    Raises:
        Usage: ``STREAMVAULT_SEND_LOGINS`` is neither yes nor no.
    """
    given = os.environ.get(VARIABLE, "") or "yes"
    if given not in {"yes", "no"}:
        raise Usage(f"{VARIABLE} is neither yes nor no", where=repr(given))
    return given == "yes"
