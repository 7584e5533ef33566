"""The page on the data sources has their options."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pytest

from streamvault.common.errors import Usage
from streamvault.spark.archive_source import ArchiveDataSource
from streamvault.spark.options import read_options, write_options
from tests.pages import DOCS, sections
from tests.unit.spark_reads import schema_of

PAGE = sections((DOCS / "reference/spark.md").read_text())
ASKED: Mapping[str, Callable[[dict[str, str]], object]] = {
    "Reading an archive": lambda given: ArchiveDataSource(given).schema(),
    "Reading a stream": read_options,
    "Writing to a stream": lambda given: write_options(given, schema_of("payload binary"), overwrite=False),
}


def told(section: str) -> set[str]:
    """The names in the first column of a section's table, without the arguments of Spark's functions."""
    cells = re.findall(r"^\| (`[^|]*) \|", PAGE[section], re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize("section", ASKED)
def test_page_has_the_options_that_are_known(section: str) -> None:
    with pytest.raises(Usage, match="unknown option") as raised:
        ASKED[section]({"nonsense": "1"})
    known = set(re.findall(r"\w+", str(raised.value).partition("Available: ")[2])) - {"path"}
    assert told(section) - {"path"} <= known
    assert known <= told(section) | told("Options of Pravega's own connector")
