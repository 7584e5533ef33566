"""What happens to a test whose server can't be had: skipped, or failed where somebody relies on it."""

from __future__ import annotations

from collections.abc import Mapping


class Unavailable(RuntimeError):
    """A server could not be fetched or started; the message says why, in words for whoever reads the test report."""


def is_required(name: str, environment: Mapping[str, str]) -> bool:
    """Whether a missing server must fail the tests that need it instead of skipping them.

    Args:
        name: the server's name, e.g. ``pravega``.
        environment: the process's environment; ``STREAMVAULT_REQUIRE`` is a comma-separated list of names, or ``all``;
            a true ``CI`` requires every server.
    """
    if environment.get("CI", "").strip().lower() in {"1", "true", "yes", "on"}:
        return True
    required = {entry.strip().lower() for entry in environment.get("STREAMVAULT_REQUIRE", "").split(",")}
    return "all" in required or name.lower() in required
