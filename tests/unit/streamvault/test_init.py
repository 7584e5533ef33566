"""The package's public interface: its functions and its version."""

from __future__ import annotations

import streamvault


def test_dir_lists_every_function() -> None:
    assert {*streamvault.__all__, "__version__"} == set(dir(streamvault))
    assert all(callable(getattr(streamvault, name)) for name in streamvault.__all__)


def test_docstring_names_every_function() -> None:
    assert {name for name in streamvault.__all__ if f" {name}" not in (streamvault.__doc__ or "")} == set()
