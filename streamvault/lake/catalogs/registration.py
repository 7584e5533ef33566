"""The only place where a table is registered: a second one would share its folder.

A table in two catalogs, or under two names, has two sets of metadata over one folder. The clean-up of one (``VACUUM``,
``remove_orphan_files``) then deletes the files of the other, and rows that were deleted in one are in the other. So the
catalog and the name are recorded before the table is created there, and its UUID, which it keeps when it is renamed,
once it exists.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal
from urllib.parse import urlsplit
from uuid import UUID

from streamvault.common.errors import Conflict
from streamvault.lake.location import TablePlace
from streamvault.layouts.keys import TABLE_IDENTITY, TABLE_REGISTRATION
from streamvault.manifests.files import File, decide_file, find_file

_NO_FILE = ("/:memory:", "/file:")
"""Beginnings of the path in an address of SQLite that is not a plain file's."""


class Registration(File):
    """The file ``registered.json`` among a table's records, created by its first registration.

    Attributes:
        catalog: see `Catalog.identity`.
        table: the table's name there, ``DATABASE.NAME``.
    """

    format: Literal[1] = 1
    catalog: str
    table: str


class CreatedTable(File):
    """The file ``created.json`` among a table's records, created once the catalog has the table.

    Attributes:
        uuid: the UUID of the catalog's table.
    """

    format: Literal[1] = 1
    uuid: UUID


def find_registration(place: TablePlace) -> Registration | None:
    """Return where a table is registered; None for nowhere yet.

    Raises:
        Damaged: the record cannot be read.
    """
    return find_file(Registration, place.archive.store, _key(place))


def check_registration(place: TablePlace, catalog: str) -> None:
    """Check that a table is registered here, or nowhere yet.

    Args:
        place: the table.
        catalog: see `Catalog.identity`.

    Raises:
        Conflict: it is registered elsewhere.
        Damaged: the record cannot be read.
    """
    found = find_registration(place)
    if found is not None:
        _check_same(found, place, catalog)


def fix_registration(place: TablePlace, catalog: str) -> None:
    """Record, create-only, where a table is registered. Call it before the catalog is changed.

    Raises:
        Conflict: it is registered elsewhere.
        Damaged: the record cannot be read.
    """
    ours = Registration(catalog=catalog, table=place.name)
    _check_same(decide_file(place.archive.store, _key(place), ours)[0], place, catalog)


def check_identity(place: TablePlace, found: UUID | None) -> None:
    """Check that the catalog's table is the one that was registered, or that none was yet.

    Args:
        place: the table.
        found: the UUID of the catalog's table; None if the catalog has no table of this name.

    Raises:
        Conflict: it is another one, or the registered table was renamed or dropped.
        Damaged: the record cannot be read.
    """
    recorded = find_file(CreatedTable, place.archive.store, place.archive.prefix + TABLE_IDENTITY)
    if recorded is not None:
        _check_identity(recorded, place, found)


def check_never_created(place: TablePlace, others: Iterable[tuple[str, str]]) -> None:
    """Check that a table that the catalog lacks was not registered by a release that did not record its UUID.

    Args:
        place: the table.
        others: the names and the locations of the tables in its database; read only if it was registered.

    Raises:
        Conflict: it was, and was renamed; or the catalog in which it was registered is not known.
        Damaged: the record cannot be read.
    """
    recorded = find_registration(place)
    if recorded is None:
        return
    record = place.archive.place.at(_key(place))
    if _is_relative(recorded.catalog):
        what = f"this catalog lacks the table, which is registered in {recorded.catalog} in an unknown folder"
        todo = f"Run the command in the same folder as before. If the table was dropped there, delete {record}."
        raise Conflict(what, where=place.name, todo=todo)
    for name, location in others:
        if name != place.name and location.rstrip("/") == place.location:
            what = f"the catalog no longer has the table {place.name}: it was renamed to {name}"
            raise Conflict(what, where=place.location, todo="Rename it back.")


def fix_identity(place: TablePlace, found: UUID) -> None:
    """Record, create-only, which table of the catalog was registered.

    Raises:
        Conflict: it is another one: two were created, the registered one having been renamed or dropped in between.
        Damaged: the record cannot be read.
    """
    key = place.archive.prefix + TABLE_IDENTITY
    _check_identity(decide_file(place.archive.store, key, CreatedTable(uuid=found))[0], place, found)


def _check_identity(recorded: CreatedTable, place: TablePlace, found: UUID | None) -> None:
    if recorded.uuid == found:
        return
    record = place.archive.place.at(place.archive.prefix + TABLE_IDENTITY)
    if found is None:
        what = f"the catalog no longer has the table {place.name} (UUID {recorded.uuid}): it was renamed or dropped"
        todo = (
            f"Rename it back. If it was dropped, delete {record} to register all its generations again; rows that were "
            "deleted from it then come back."
        )
    else:
        what = f"{place.name} in the catalog has the UUID {found}, but the registered table has {recorded.uuid}"
        todo = (
            "If that one was renamed, drop this one without its files and rename the other back. "
            f"If there is no other, delete {record}."
        )
    raise Conflict(what, where=place.location, todo=todo)


def plain_address(uri: str) -> str:
    """Return a catalog's address without credentials, options, and the name of a database's driver.

    The path of SQLite's file is absolute and without symbolic links.
    """
    parts = urlsplit(uri)
    kind, path = parts.scheme.partition("+")[0], parts.path
    if kind == "sqlite" and path.strip("/") and not path.startswith(_NO_FILE):
        path = f"/{os.path.realpath(path[1:])}"
    return f"{kind}://{parts.netloc.rpartition('@')[2].lower()}{path.rstrip('/')}"


def _is_relative(catalog: str) -> bool:
    """Return whether a recorded catalog is a file of SQLite in an unknown folder, as earlier releases recorded it."""
    kind, _, path = catalog.partition("://")
    return kind == "sqlite" and path.strip("/") != "" and not path.startswith(("//", *_NO_FILE))


def _is_same(recorded: str, catalog: str) -> bool:
    if _is_relative(recorded):
        return catalog.startswith("sqlite:")  # it must have the table, see `check_never_created`
    address, mark, inner = recorded.partition("#")
    return catalog in {recorded, f"{plain_address(address)}{mark}{inner}"}


def _key(place: TablePlace) -> str:
    return place.archive.prefix + TABLE_REGISTRATION


def _check_same(found: Registration, place: TablePlace, catalog: str) -> None:
    if found.table == place.name and _is_same(found.catalog, catalog):
        return
    record = place.archive.place.at(_key(place))
    raise Conflict(
        f"the table is registered as {found.table} in {found.catalog}, and maintenance there would delete the files of "
        f"{place.name} in {catalog}",
        where=place.location,
        todo=f"Create another table (--table NAME) or use another --root. If it has moved for good, drop it there "
        f"without its files, then delete {record}.",
    )
