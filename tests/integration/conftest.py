"""Options of the integration tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--dropped-objects",
        type=int,
        default=2_500,
        metavar="N",
        help="let a generation of N objects expire (give tests/integration as an argument too; 2,500 by default)",
    )
