"""The package's public interface: its functions, its version, and the origin of the packages it imports."""

from __future__ import annotations

from pathlib import Path

import streamvault

ROOT = Path(streamvault.__file__).parents[1]


def test_dir_lists_every_function() -> None:
    assert {*streamvault.__all__, "__version__"} == set(dir(streamvault))
    assert all(callable(getattr(streamvault, name)) for name in streamvault.__all__)
