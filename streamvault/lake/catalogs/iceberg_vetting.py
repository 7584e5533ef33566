"""What PyIceberg is allowed to take from an Iceberg table's metadata, and from what a catalog's server answers.

Whoever may write into a table's folder may write its metadata. PyIceberg trusts them: they name modules to import,
files to delete, and the server that the login for the files is sent to. Here, files are opened as the operator has set
it, in the table's folder only, and none is deleted; a table is changed only after `vet`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog, MetastoreCatalog, infer_catalog_type, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import StagedTable, Table
from pyiceberg.typedef import EMPTY_DICT, Properties
from pyiceberg.utils.concurrent import ExecutorFactory
from pyiceberg.utils.config import PYICEBERG_HOME, PYICEBERG_YML, Config

from streamvault.common.errors import Conflict, Damaged, Usage
from streamvault.lake.catalogs import check_location
from streamvault.lake.location import TablePlace
from streamvault.manifests.files import one_line

_PATHS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
"""Properties of a table that name a folder; Athena sets one. It must be in the table's own."""

_HARMLESS = re.compile(
    r"(?!py-|DEFAULT_)[A-Za-z][\w-]*(?<!-impl)"  # as comment, owner, EXTERNAL, Athena's vacuum_… and users' own
    r"|(streamvault|commit|compatibility|history\.expire|read|engine\.hive|nessie|polaris|presto|spark|trino|dbt)\..+"
    r"|(databricks|flink|glue|hive|impala|orc|self-optimizing|snowflake)\..+"
    r"|write\.(parquet|orc|avro|delete|update|merge|upsert|format|spark|wap|summary|metadata\.metrics)\..+"
    r"|write\.(distribution-mode|manifest-lists\.enabled|target-file-size-bytes|data\.partition-columns)"
    r"|write\.metadata\.(compression-codec|previous-versions-max|delete-after-commit\.enabled)"
    r"|write\.object-storage\.(enabled|partitioned-paths)"
    r"|created-at|format-version|gc\.enabled|schema\.name-mapping\.default",
    re.ASCII,
)
"""Other properties of a table that may be there: what engines set, and cannot make a handoff run, read or send more."""

_KEYS = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token")
_LOGINS = (*_KEYS, *(f"{kind}.{name}" for kind in ("s3", "client") for name in ("profile-name", "role-arn")))
_LOGINS += ("client.access-key-id", "client.secret-access-key", "client.session-token")
"""Settings of a login, which a login that a server hands out replaces as a whole."""

_OF_SERVER = ("prefix", "warehouse", "namespace-separator", "uri")
"""What a REST server may answer about itself; the last one only at the address that the operator has given."""


def load_vetted(name: str, place: TablePlace, **properties: Any) -> Catalog:
    """Open a catalog of PyIceberg, for one table.

    Args:
        name: its name in PyIceberg's configuration.
        place: the table.
        properties: settings beside those of the configuration.

    Raises:
        ValueError: settings are missing.
        Usage: they would be taken from the working folder.
    """
    _refuse_settings_here()
    setting: dict[str, Any] = {**(Config().get_catalog_config(name) or {}), **properties}
    kind = setting.get("type") or infer_catalog_type(name, setting)
    if "uri" in setting and str(getattr(kind, "value", kind)).lower() == "rest":
        rest = _VettedRest(name, **setting)
        rest.place = place
        return rest
    opened: Any = load_catalog(name, **properties)
    opened.__class__ = type("Vetted", (_VettedMetastore, type(opened)), {"place": place})
    return opened  # type: ignore[no-any-return]


def _refuse_settings_here() -> None:
    """PyIceberg takes its file from the working folder if there is none elsewhere: anybody may have put it there."""
    homes = [Path(folder).expanduser() for folder in (os.environ.get(PYICEBERG_HOME) or "~", "~")]
    if Path(PYICEBERG_YML).is_file() and not any((home / PYICEBERG_YML).is_file() for home in homes):
        todo = f"Move them to your home folder, or name their folder in {PYICEBERG_HOME}, if they are yours."
        where = str(Path(PYICEBERG_YML).absolute())
        raise Usage("settings of PyIceberg in the working folder are not used", where=where, todo=todo)


def vet(table: Table, place: TablePlace) -> None:
    """Check a table's metadata before anything that they say is done.

    Raises:
        Conflict: it is a table at another location, or has a property that is not known to be harmless, or that names
            a folder elsewhere.
        Damaged: they name a file outside the table's folder.
    """
    check_location(place.name, place.location, table.location())
    metadata, is_inside = table.metadata, _inside(place.location)
    for name, value in metadata.properties.items():
        if not (is_inside(value) if name in _PATHS else _HARMLESS.fullmatch(name)):
            raise Conflict(
                "the catalog's table has a property that may run code, or make files be read and written elsewhere",
                where=f"{place.name}: {one_line(name)}",
                todo="Remove it (ALTER TABLE … UNSET TBLPROPERTIES). If nobody has set it, somebody has changed the "
                "table's metadata: find out who may write into its folder.",
            )
    named = [one for one in (table.metadata_location,) if one]  # a table that is being created has none yet
    named += [entry.metadata_file for entry in metadata.metadata_log]
    named += [snapshot.manifest_list for snapshot in metadata.snapshots]
    named += [found.statistics_path for found in (*metadata.statistics, *metadata.partition_statistics)]
    _check_inside(named, place)


def vet_files(table: Table, place: TablePlace, new: Collection[str]) -> None:
    """Check the files that a table's manifests name, before files are added.

    Args:
        table: the table.
        place: where it is.
        new: the URIs of the files that will be added.

    Raises:
        Conflict: the table already has one of the files.
        Damaged: a file is outside the table's folder.
    """

    def of_manifest(manifest: ManifestFile) -> list[str]:
        return [entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)]

    snapshot, added = table.current_snapshot(), set(new)
    for files in ExecutorFactory.get_or_create().map(of_manifest, snapshot.manifests(table.io) if snapshot else ()):
        _check_inside(files, place)
        if twice := added.intersection(files):
            todo = "Create another table (--table NAME)."
            raise Conflict(f"{place.name} already has a file that is to be added", where=min(twice), todo=todo)


def _check_inside(files: Iterable[str], place: TablePlace) -> None:
    is_inside = _inside(place.location)
    for file in files:
        if not is_inside(file):
            raise Damaged(
                "the table's metadata name a file outside the table's folder, which is not touched",
                where=f"{place.name}: {one_line(file)}",
                todo="Somebody has changed the metadata: find out who may write into the folder, and restore it from a "
                "backup, or create another table (--table NAME).",
            )


def _inside(folder: str) -> Callable[[str], bool]:
    """Return what checks whether a file's URI is below a folder's; a local folder's links are followed."""
    folder = _plain(folder)
    scheme, _, path = folder.partition("://")
    whole = Path(path).resolve() if scheme == "file" else None

    def is_inside(file: str) -> bool:
        file = _plain(file)
        below = file.removeprefix(f"{folder}/")
        # what PyIceberg cuts off, or drops from between two dots
        if below == file or set("?#\t\n\r") & set(below) or {".", ".."} & set(below.split("/")):
            return False
        return whole is None or Path(f"{path}/{below}").resolve().is_relative_to(whole)

    return is_inside


def _plain(uri: str) -> str:
    """Return a URI as this project writes it, which Hadoop writes as ``s3a://`` and ``file:/``."""
    return re.sub(r"^file:/(?!/)", "file:///", re.sub(r"^s3[an]:", "s3:", uri))


class _TableFiles(FileIO):
    """The files of a table, in its folder only. None is deleted: a handoff only adds, and engines clean up.

    Args:
        files: opens files as the operator has set it.
        place: the table.
        pointer: what the catalog says is the table's metadata. It is read wherever it is, to see whose table it is.
    """

    def __init__(self, files: FileIO, place: TablePlace, pointer: str | None) -> None:
        super().__init__(files.properties)
        self._files = files
        self._place = place
        self._pointer = pointer

    def new_input(self, location: str) -> InputFile:
        """See the base class."""
        if location != self._pointer:
            _check_inside([location], self._place)
        return self._files.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """See the base class."""
        _check_inside([location], self._place)
        return self._files.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete nothing."""


class _Vetted(Catalog):
    """A catalog that opens a table's files as the operator has set it, whatever the table's properties say."""

    place: TablePlace

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        files = super()._load_file_io(self._login_for(properties), location)
        return _TableFiles(files, self.place, location)

    def _login_for(self, properties: Properties) -> Properties:  # noqa: ARG002  (of a REST server they have one)
        return EMPTY_DICT


class _VettedMetastore(_Vetted, MetastoreCatalog):
    """A catalog that has only the address of a table's metadata, which PyIceberg reads again to commit."""

    def _update_and_stage_table(self, current_table: Table | None, *arguments: Any, **options: Any) -> StagedTable:
        if current_table is not None:
            vet(current_table, self.place)
        return super()._update_and_stage_table(current_table, *arguments, **options)


class _VettedRest(_Vetted, RestCatalog):
    """A REST catalog. Its server may name a path and hand out a login for the table, and set nothing else."""

    def _fetch_config(self) -> None:
        own = dict(self.properties)
        super()._fetch_config()
        told = self.properties
        if urlsplit(told["uri"])[:2] != urlsplit(own["uri"])[:2]:
            told = {**told, "uri": own["uri"]}
        self.properties = {**own, **{name: told[name] for name in _OF_SERVER if name in told}}
        self.uri = self.properties["uri"]

    def _login_for(self, properties: Properties) -> Properties:
        if not all(properties.get(name) for name in _KEYS[:2]):
            return EMPTY_DICT
        return {**dict.fromkeys(_LOGINS, ""), **{name: properties[name] for name in _KEYS if name in properties}}
