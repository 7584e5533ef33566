"""Iceberg tables through PyIceberg: one snapshot for each generation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

import pyarrow as pa
from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    ResolveError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.io.pyarrow import parquet_file_to_data_file, pyarrow_to_schema
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, promote
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import AddPartitionSpecUpdate, AssertTableUUID
from pyiceberg.table.update.snapshot import _MergeAppendFiles
from pyiceberg.transforms import DayTransform, VoidTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)
from pyiceberg.utils.concurrent import ExecutorFactory

from streamvault.common.errors import Conflict, Problem, Usage
from streamvault.lake.catalogs import CatalogFailed, check_follows, check_known, while_busy
from streamvault.lake.catalogs.iceberg_vetting import load_vetted, vet, vet_files
from streamvault.lake.catalogs.registration import check_identity, check_never_created, fix_identity, plain_address
from streamvault.lake.location import TablePlace, not_taken
from streamvault.lake.table import EVENT_TIME, GENERATION_DAY, hive_type, removed
from streamvault.manifests.files import one_line
from streamvault.manifests.history import Generation
from streamvault.objectstore.s3.access import S3Access

_WIDER = "int to bigint, float to double, decimal to more digits"
_MAPPING = "schema.name-mapping.default"


def check_columns(table: Table, place: TablePlace, ours: pa.Schema) -> None:
    """Check that a table still has every column of a handoff's files, with a type that can hold its values.

    Columns may have been added, moved, or widened (int to bigint, float to double, decimals to a higher precision).
    Columns of the files may be new, or wider than those of the newest generation in the table.

    Args:
        table: the catalog's table.
        place: the table.
        ours: the columns of the files.

    Raises:
        Conflict: a column was renamed, dropped or has another type, or one without which rows are not valid was added.
            Names the column.
    """
    schema = table.schema()
    known = place.as_of(_newest(table, place)).options.schema
    for field in known:
        if field.name not in schema.column_names:
            todo = f"Rename it back, or add a column {field.name} {hive_type(field.type)}"
            raise _changed(place, f"the catalog's table no longer has the column {field.name}", todo)
        if not _has(schema, field):
            what = f"the column {field.name} of the catalog's table no longer fits the type {hive_type(field.type)}"
            raise _changed(place, what, "Give it this type again, or a wider one")
    for field in (field for field in ours if field not in known):
        if not _fits_grown(table, field):
            what = f"the column {field.name} of the catalog's table cannot become {hive_type(field.type)}"
            raise _changed(place, what, f"Give it this type, or one that can be widened to it: {_WIDER}")
    for column in schema.fields:
        if column.required and column.name not in ours.names:
            what = f"the catalog's table has a required column that the table's files lack: {column.name}"
            raise _changed(place, what, "Drop it, or make it optional")


def _fits_grown(table: Table, field: pa.Field) -> bool:
    """Return whether a table can get a column, or widen the one that it has, so that it fits a column of the files."""
    before = table.schema()
    try:
        schema = table.update_schema().union_by_name(pa.schema([field]))._apply()  # noqa: SLF001  (without a commit)
    except (ValueError, ResolveError, ValidationError):
        return False
    added = {name.lower() for name in schema.column_names if name not in before.column_names}
    if added & {name.lower() for name in before.column_names}:  # engines could not tell the two apart
        return False
    is_wider = field.name not in before.column_names or _fits(
        schema.find_field(field.name), before.find_field(field.name)
    )
    return is_wider and _has(schema, field)


def _has(schema: Schema, field: pa.Field) -> bool:
    """Return whether a table has a column that holds those values of the files."""
    if field.name not in schema.column_names:
        return False
    try:
        # with the identifiers of the table's columns
        ours = pyarrow_to_schema(pa.schema([field]), name_mapping=schema.name_mapping).fields[0]
    except ValueError:  # it has unknown members
        return False
    return _fits(schema.find_field(field.name), ours)


def _grow(change: Transaction, ours: pa.Schema) -> None:
    """Add columns, and members of structs, that a table lacks, and widen those that are narrower than ours."""
    if not all(_has(change.table_metadata.schema(), field) for field in ours):
        with change.update_schema() as columns:
            columns.union_by_name(ours)
    mapping = change.table_metadata.name_mapping()
    try:
        if mapping is not None:
            pyarrow_to_schema(ours, name_mapping=mapping)
    except ValueError:  # an engine has added a column without its name, and readers would find no values in our files
        change.set_properties({_MAPPING: change.table_metadata.schema().name_mapping.model_dump_json()})


def _changed(place: TablePlace, what: str, todo: str) -> Conflict:
    return Conflict(what, where=place.name, todo=f"{todo}; or create another table (--table NAME).")


def _fits(theirs: NestedField, ours: NestedField) -> bool:
    return (ours.required or not theirs.required) and _type_fits(theirs.field_type, ours.field_type)


def _type_fits(theirs: IcebergType, ours: IcebergType) -> bool:
    """Return whether values of a column in the files can be read as those of a table's column."""
    match theirs, ours:
        case StructType(), StructType():
            held = {member.field_id: member for member in ours.fields}
            return all(
                _fits(member, held[member.field_id]) if member.field_id in held else not member.required
                for member in theirs.fields
            )
        case ListType(), ListType():
            return _fits(theirs.element_field, ours.element_field)
        case MapType(), MapType():
            return _fits(theirs.key_field, ours.key_field) and _fits(theirs.value_field, ours.value_field)
        case PrimitiveType(), PrimitiveType():
            widens = isinstance(ours, IntegerType | FloatType | DecimalType)  # it also makes texts of bytes
            with suppress(ResolveError):
                return ours == theirs or (widens and bool(promote(ours, theirs)))
    return False


NEWEST = "streamvault.generation"
FINGERPRINT = "streamvault.fingerprint"
"""Properties of the table (the newest generation in it) and of each snapshot (the one that it added)."""

_LOOK_AGAIN = (
    CommitFailedException,
    CommitStateUnknownException,
    TableAlreadyExistsError,
    NoSuchTableError,
)
"""What a commit fails with if the table has changed since it was looked at, or if its result is not known."""

_IS_BEHIND = "older than last sequence number"
"""Said by a commit, in errors of several classes, if a snapshot was added since and the table was rolled back."""


_ROLL_FORWARD = "Make its newest snapshot the current one again, or create another table (--table NAME)."


class IcebergTables:
    """A `lake.catalogs.Catalog` for Iceberg tables.

    A property of the table contains its newest generation. It is changed by the commit that adds the files, so it is
    right even after snapshots have expired. The commit requires that the table, known by its UUID, still has the
    snapshot that it had when the property was read.

    Args:
        text: see `lake.catalogs.open_catalog`.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._opened: Catalog | None = None
        self._opened_for = ""

    def identity(self, place: TablePlace) -> str:
        """See `Catalog.identity`."""
        with self._translated_errors(place):
            catalog = self._catalog(place)
            found = catalog.properties
            if isinstance(catalog, GlueCatalog):
                account = f":{found['glue.id']}" if "glue.id" in found else ""
                return f"glue:{catalog.glue.meta.region_name}{account}"
            # in a database, a catalog's name separates its tables from those of others
            inner = catalog.name if isinstance(catalog, SqlCatalog) else found.get("warehouse", "")
            return f"{plain_address(found.get('uri', type(catalog).__name__))}{inner and '#'}{inner}"

    def check_columns(self, place: TablePlace, ours: pa.Schema) -> None:
        """See `Catalog.check_columns`."""
        with self._translated_errors(place):
            table = self._find(place)
            if table is not None:
                check_columns(table, place, ours)

    def missing(self, place: TablePlace, generations: Sequence[int]) -> list[int]:
        """See `Catalog.missing`."""
        with self._translated_errors(place):
            table = self._find(place)
            if table is None:
                check_never_created(place, self._others(place))
            newest = 0 if table is None else _newest(table, place)
            check_known(generations, newest, place)
            if table is not None and newest:
                _check_same(table, place, newest, place.archive.fingerprint(newest))
        return [number for number in generations if number > newest]

    def publish(self, place: TablePlace, generation: Generation) -> bool:
        """See `Catalog.publish`."""
        number = generation.manifest.generation
        recorded = {NEWEST: str(number), FINGERPRINT: generation.fingerprint}
        files: list[str] | None = None
        tried: list[int | None] = []
        with self._translated_errors(place):
            ours = place.as_of(number).options.schema
            for _ in while_busy(place):
                table = self._find(place)
                newest = 0 if table is None else _newest(table, place)
                if table is not None and newest >= number:
                    if newest == number:
                        _check_same(table, place, number, generation.fingerprint)
                    fix_identity(place, table.metadata.table_uuid)
                    # True if an attempt of this call did it, whose answer was lost
                    return any(one is not None and table.snapshot_by_id(one) is not None for one in tried)
                check_follows(number, newest, place)
                if table is not None:
                    check_columns(table, place, ours)
                if files is None:
                    files = place.files(generation)
                    place.check_readable(files)
                if table is not None:
                    vet_files(table, place, files)
                try:
                    with self._change(place, table, ours) as change:
                        if table is not None:
                            _grow(change, ours)
                        if files:
                            _add_files(change, files, recorded)
                        else:  # a snapshot without files; it is rejected as well if the table has changed
                            with change.update_snapshot(snapshot_properties=recorded).fast_append():
                                pass
                        change.set_properties(recorded)
                        tried.append(change.table_metadata.current_snapshot_id)
                except _LOOK_AGAIN:
                    continue
                return True
        raise AssertionError  # it is tried until one of these ends it

    def claim(self, place: TablePlace) -> None:
        """See `Catalog.claim`."""
        with self._translated_errors(place):
            table = self._find(place)
            if table is not None:
                fix_identity(place, table.metadata.table_uuid)

    @contextmanager
    def _change(self, place: TablePlace, table: Table | None, ours: pa.Schema) -> Iterator[Transaction]:
        """Change a table in one commit, which also creates it: it never exists without its first generation.

        Args:
            place: the table.
            table: the catalog's table as it was looked at; None if it has none.
            ours: the columns of a table that is created.

        Raises:
            _LOOK_AGAIN: the table has changed since, or the result is not known.
            Conflict: the table was created by another run, and renamed or dropped.
        """
        try:
            with self._create(place, ours) if table is None else _OneAttempt(table) as change:
                yield change
                if table is None:
                    self._check_missing(place)  # late, as a second table shares the folder
        except UnicodeEncodeError as error:  # of a text that the library made of the greatest one in a column
            raise not_taken(place.name, error) from None
        except Exception as error:
            if _IS_BEHIND in str(error):
                raise CommitFailedException(str(error)) from error
            raise
        if table is None:
            self._record_creation(place, change.table_metadata.table_uuid)

    def _check_missing(self, place: TablePlace) -> None:
        if self._find(place) is not None:
            raise TableAlreadyExistsError

    def _record_creation(self, place: TablePlace, created: UUID) -> None:
        """Record the table that this run has created; drop it, but no file, if that is no longer to be registered.

        Another one was registered meanwhile, or the table was removed. No catalog can drop a table only if it has a
        certain UUID. If somebody drops or renames this run's table and creates another one of its name between the look
        and the drop, that one is dropped: it keeps all its files, so its newest metadata can be registered again.
        """
        try:
            fix_identity(place, created)
            if place.is_removed():
                raise removed(place.location)
        except Conflict:  # `Overtaken` is one
            catalog, name = self._catalog(place), (place.database, place.options.table)
            with suppress(NoSuchTableError):
                try:
                    is_ours = catalog.load_table(name).metadata.table_uuid == created
                except FileNotFoundError:  # its metadata were removed with it
                    is_ours = True
                if is_ours:
                    catalog.drop_table(name)
            check_identity(place, None)  # raises
            raise

    def _others(self, place: TablePlace) -> Iterator[tuple[str, str]]:
        """Yield the name and the location of each table in the database."""
        catalog = self._catalog(place)
        with suppress(NoSuchNamespaceError):
            for name in catalog.list_tables(place.database):
                with suppress(NoSuchTableError, FileNotFoundError):  # dropped meanwhile, or without its metadata
                    yield ".".join(name), catalog.load_table(name).location()

    def _find(self, place: TablePlace) -> Table | None:
        table = self._load(place)
        if table is None:
            try:
                check_identity(place, None)
            except Conflict:
                table = self._load(place)  # another run may have created and recorded it in the meantime
                if table is None:
                    raise
        if table is None:
            return None
        vet(table, place)
        check_identity(place, table.metadata.table_uuid)
        return table

    def _load(self, place: TablePlace) -> Table | None:
        try:
            return self._catalog(place).load_table((place.database, place.options.table))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except FileNotFoundError as error:
            if f"/table/{place.options.table}/" not in str(error):
                raise
            what = f"{place.name} in the catalog has lost its metadata"
            todo = "Restore the file from a backup. If the table was removed, drop it in the catalog, too."
            raise Conflict(what, where=one_line(error), todo=todo) from None

    def _create(self, place: TablePlace, ours: pa.Schema) -> Transaction:
        """Begin a transaction that creates the table. If another run is first, this or the commit fails."""
        catalog, name = self._catalog(place), (place.database, place.options.table)
        try:
            catalog.create_namespace(place.database)
        except NamespaceAlreadyExistsError:
            pass
        except Exception:
            if not catalog.namespace_exists(place.database):  # else another run was faster by a moment
                raise
        change = catalog.create_table_transaction(name, ours, location=place.location)
        vet(change._table, place)  # noqa: SLF001  (as a REST server has answered)
        with change.update_spec() as partitions:
            if place.options.event_time:
                partitions.add_field(EVENT_TIME, DayTransform(), f"{EVENT_TIME}_day")
            elif place.options.generation_day:  # not a day of a time, of which PyIceberg alone can write no partitions
                partitions.add_identity(GENERATION_DAY)
        return change

    def _catalog(self, place: TablePlace) -> Catalog:
        if self._opened is None or self._opened_for != place.location:  # it is vetted for one table
            kind, colon, uri = self._text.partition(":")
            access: S3Access | None = place.archive.root.access
            reach = _file_properties(access)
            if self._text == "glue":
                region = {} if access is None else {"glue.region": access.region}
                self._opened = load_vetted("streamvault", place, type="glue", **region, **reach)
            elif colon and kind == "rest":
                # a server's warehouse, if it needs one, is set in PyIceberg's configuration
                self._opened = load_vetted("streamvault", place, type=kind, uri=uri, **reach)
            elif colon and kind == "sql":
                self._opened = _open_sql(uri, place, {"warehouse": place.location, **reach})
            else:
                self._opened = self._configured(place, reach)
            self._opened_for = place.location
        return self._opened

    def _configured(self, place: TablePlace, reach: dict[str, Any]) -> Catalog:
        """Open a catalog by its name.

        Raises:
            Usage: PyIceberg's configuration does not have it.
        """
        try:
            return load_vetted(self._text, place, **reach)
        except ValueError as error:
            if type(error) is not ValueError:  # what a server answered
                raise
            todo = f"Set PYICEBERG_CATALOG__{self._text.upper()}__URI, or use glue, rest:URI or sql:URI."
            raise Usage("PyIceberg's configuration has no such catalog", where=repr(self._text), todo=todo) from None

    @contextmanager
    def _translated_errors(self, place: TablePlace) -> Iterator[None]:
        """Translate the errors of a catalog, which have no common base class."""
        try:
            yield
        except Problem:
            raise
        except (ClientError, BotoCoreError, OSError) as error:
            where = f"{place.name}: {one_line(error)}"
            todo = (
                "" if isinstance(error, ClientError) else "Check that it is running, and check its address and login."
            )
            raise CatalogFailed("the catalog cannot be used", where=where, todo=todo) from None
        except Exception as error:
            text = one_line(f"{type(error).__name__}: {error}")
            raise CatalogFailed(f"catalog {self._text} failed", where=f"{place.name}: {text}") from error


class _OneAttempt(Transaction):
    """A transaction that is committed once, over the very snapshot of the table that was looked at.

    PyIceberg's own tries again after a conflict, on whatever snapshot there is then: beside another run, it would add a
    generation a second time. And where the transport repeats a commit whose answer was lost, the conflict that it
    reports would make it delete the metadata of a snapshot that is in the table. Here, those of a failed attempt stay
    until orphaned files are removed.
    """

    def commit_transaction(self) -> Table:
        """Commit.

        Raises:
            CommitFailedException: the table has changed, or is another one.
        """
        is_same = AssertTableUUID(uuid=self.table_metadata.table_uuid)
        requirements = (*self._requirements, is_same)
        self._table._do_commit(updates=self._updates, requirements=requirements)  # noqa: SLF001  (as PyIceberg's own)
        return self._table


class _Append(_MergeAppendFiles):
    """Adds files, each in the partitions that it says; PyIceberg's own takes all for the table's current ones."""

    def _manifests(self) -> list[ManifestFile]:
        added = []
        for number in sorted({file.spec_id for file in self._added_data_files}):
            with self.new_manifest_writer(self.spec(number)) as writer:
                for file in self._added_data_files:
                    if file.spec_id == number:
                        status, snapshot = ManifestEntryStatus.ADDED, self._snapshot_id
                        writer.add(ManifestEntry.from_args(status=status, snapshot_id=snapshot, data_file=file))
            added.append(writer.to_manifest_file())
        return self._process_manifests([*added, *self._existing_manifests()])


def _add_files(change: Transaction, files: Sequence[str], recorded: dict[str, str]) -> None:
    """Add files to a table, in one snapshot with these properties.

    A file whose rows are all in one partition is added there. Any other is added without one, which every table may
    have: queries go by the file's statistics, and engines put the rows into partitions when they compact.
    """
    if change.table_metadata.name_mapping() is None:  # the files' columns have names, and no numbers
        names = change.table_metadata.schema().name_mapping.model_dump_json()
        change.set_properties({TableProperties.DEFAULT_NAME_MAPPING: names})
    specs = change.table_metadata.specs()
    plain = next((number for number, spec in specs.items() if spec.is_unpartitioned()), None)
    if plain is None:  # an engine has removed it, as no file was without partitions
        plain = max(specs) + 1
        change._apply((AddPartitionSpecUpdate(spec=PartitionSpec(spec_id=plain)),))  # noqa: SLF001
    table, io = change.table_metadata, change._table.io  # noqa: SLF001  (as PyIceberg's own)
    unpartitioned = table.model_copy(update={"default_spec_id": plain})

    def described(file: str) -> DataFile:
        found, parts = parquet_file_to_data_file(io, unpartitioned, file), table.spec().fields
        found.spec_id = plain
        if parts and all(_has_one_value(found, part, table.schema()) for part in parts):
            found = parquet_file_to_data_file(io, table, file)
            found.spec_id = table.default_spec_id
        return found

    with _Append(Operation.APPEND, change, io, snapshot_properties=recorded) as append:
        for one in ExecutorFactory.get_or_create().map(described, files):
            append.append_data_file(one)


def _has_one_value(file: DataFile, part: PartitionField, schema: Schema) -> bool:
    """Return whether all rows of a file are known to have one value in a field of a table's partitions.

    PyIceberg leaves out nulls, and NaN, of which no bounds tell: rows would be in a partition where no query for their
    value looks.
    """
    if isinstance(part.transform, VoidTransform):
        return True
    source, kind = part.source_id, schema.find_type(part.source_id)
    low, high = (bounds.get(source) for bounds in (file.lower_bounds, file.upper_bounds))
    if low is None or high is None or file.null_value_counts.get(source) != 0:
        return False
    if not isinstance(kind, PrimitiveType) or isinstance(kind, (FloatType, DoubleType)):
        return False
    if not part.transform.preserves_order:
        return False
    value = part.transform.transform(kind)
    return value(from_bytes(kind, low)) == value(from_bytes(kind, high))


def _newest(table: Table, place: TablePlace) -> int:
    """Return the table's newest generation; 0 for none."""
    text = table.properties.get(NEWEST, "0")
    if not text.isdecimal():
        raise Conflict(f"the table's property {NEWEST} is not a number", where=f"{place.name}: {text[:40]}")
    newest = int(text)
    if newest and table.current_snapshot() is None:
        what = f"the catalog's table has no current snapshot, but had generation {newest}"
        raise Conflict(what, where=place.name, todo=_ROLL_FORWARD)
    if not newest and table.current_snapshot() is not None:
        todo = "Give the table another name (--table DATABASE.NAME)."
        raise Conflict("the table has data that no handoff wrote", where=place.name, todo=todo)
    _check_not_rolled_back(table, place, newest)
    return newest


def _check_not_rolled_back(table: Table, place: TablePlace, newest: int) -> None:
    """Check the current snapshot, as the property does not change when a table is rolled back."""
    oldest, snapshot = None, table.current_snapshot()
    while snapshot is not None:
        recorded = _generation_of(snapshot)
        if recorded is not None:
            if recorded != str(newest):
                what = f"the catalog's table was rolled back from generation {newest} to {recorded}"
                raise Conflict(what, where=place.name, todo=_ROLL_FORWARD)
            return
        oldest, parent = snapshot, snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)  # also None if it has expired
    # what has expired is older than the oldest that is left; an ancestor with a later number would have been met
    if oldest is not None and any(
        _generation_of(one) == str(newest) and (one.sequence_number or 0) > (oldest.sequence_number or 0)
        for one in table.snapshots()
    ):
        what = f"the catalog's table was rolled back from generation {newest} to a snapshot of another writer"
        raise Conflict(what, where=place.name, todo=_ROLL_FORWARD)


def _generation_of(snapshot: Snapshot) -> str | None:
    """Return the generation that a snapshot added, as text; None for a snapshot of another writer."""
    return None if snapshot.summary is None else snapshot.summary[NEWEST]


def _check_same(table: Table, place: TablePlace, number: int, fingerprint: str) -> None:
    if table.properties.get(FINGERPRINT) != fingerprint:
        todo = "Give the table another name (--table DATABASE.NAME)."
        raise Conflict(f"the table has another generation {number}", where=place.name, todo=todo)


def _open_sql(uri: str, place: TablePlace, properties: dict[str, Any]) -> Catalog:
    """Open a catalog in a database, which creates its own tables there if they are missing."""
    try:
        return load_vetted("streamvault", place, type="sql", uri=uri, **properties)
    except Exception as error:
        if "already exists" not in str(error):  # else another run was faster by a moment
            raise
        return load_vetted("streamvault", place, type="sql", uri=uri, **properties)


def _file_properties(access: S3Access | None) -> dict[str, Any]:
    """Return PyIceberg's settings for the access to the files."""
    if access is None:
        return {}
    found: dict[str, Any] = {"s3.region": access.region}
    if not access.endpoint.endswith((".amazonaws.com", ".amazonaws.com.cn")):
        found["s3.endpoint"] = access.endpoint
    if access.virtual_host and "s3.endpoint" in found:
        found["s3.force-virtual-addressing"] = "true"
    if access.keys is not None:
        found["s3.access-key-id"], found["s3.secret-access-key"] = access.keys.access_key, access.keys.secret_key
        if access.keys.token:
            found["s3.session-token"] = access.keys.token
    elif access.profile:
        found["client.profile-name"] = access.profile
    return found
