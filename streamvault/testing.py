"""For tests of programs that read Pravega streams: a plugin for pytest, which every session of it loads.

So nothing heavy is imported until a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from streamvault.serving.embedded import EmbeddedPravega


@pytest.fixture
def pravega(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPravega]:
    """A server in this process that answers as a Pravega cluster to clients that read, until the test ends."""
    from streamvault.serving.embedded import embedded_pravega  # noqa: PLC0415

    with embedded_pravega(tmp_path_factory.mktemp("pravega")) as server:
        yield server
