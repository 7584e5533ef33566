"""Tables in SQL: what Spark passes when one is created, read and written."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamvault.common.errors import Problem
from streamvault.spark.archive_source import ArchiveDataSource
from streamvault.spark.pravega_source import PravegaDataSource
from testkit.small_archives import Vault
from tests.unit.spark_reads import events_in

CREATION = {"owner": "me", "provider": "streamvault", "comment": "ours"}


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    vault = Vault(tmp_path)
    vault.create()
    for payload in (b"first", b"second"):
        vault.add(payload)
        vault.export("chunks")
    return vault


def test_table_is_read_with_the_options_it_was_created_with(vault: Vault) -> None:
    given = {"path": vault.archive, "location": vault.archive, "option.generation": "1", "generation": "1", "k": "v"}
    schema = ArchiveDataSource({**CREATION, **given}).schema()

    def found(**options: str) -> list[bytes]:
        reader = ArchiveDataSource(options).reader(schema)
        return [payload for part in reader.partitions() for _, payload in events_in(reader.read(part))]

    assert found() == [b"first"]
    assert found(generation="2") == [b"first", b"second"]
    # another place, with the columns of a table: the table's options are not those of the query
    assert found(path=vault.archive) == [b"first", b"second"]


def test_stream_is_a_table_by_any_of_its_names(vault: Vault) -> None:
    controller, scope, stream = vault.uri().rsplit("/", 2)
    given = {
        "option.controller": controller,
        "option.scope": scope,
        "option.stream": stream,
        "option.columns": "length",
    }
    schema = PravegaDataSource({**CREATION, **given}).schema()
    assert schema.fieldNames() == ["length"]
    (partition,) = (reader := PravegaDataSource({}).reader(schema)).partitions()
    assert [batch.to_pydict() for batch in reader.read(partition)] == [{"length": [13, 14]}]


def test_wrong_option_fails_the_creation(vault: Vault) -> None:
    with pytest.raises(Problem, match="unknown option: option generations"):
        ArchiveDataSource({**CREATION, "path": vault.archive, "option.generations": "1"}).schema()


def test_nothing_is_written_to_the_table_that_is_read(vault: Vault) -> None:
    """Columns that were read from a table have its metadata."""
    schema = PravegaDataSource({**CREATION, "path": vault.uri(), "option.columns": "payload"}).schema()
    assert PravegaDataSource({}).reader(schema)
    for write in (PravegaDataSource({}).writer, PravegaDataSource({}).streamWriter):
        with pytest.raises(Problem, match="A table in SQL can only be read"):
            write(schema, False)
