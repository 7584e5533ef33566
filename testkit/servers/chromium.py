"""A browser to look at pages with: Debian's Chromium."""

from __future__ import annotations

from testkit.servers.debian import find_program


def find_chromium() -> str:
    """The path of a Chromium.

    Raises:
        Unavailable: there is none.
    """
    return find_program(("chromium", "chromium-browser", "google-chrome"), ("chromium", "fonts-dejavu-core"))
