"""The only place where a table is registered: a second one would share its folder.

A table in two catalogs, or under two names, has two sets of metadata over one folder. The clean-up of one (``VACUUM``,
``remove_orphan_files``) then deletes the files of the other.
"""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from streamvault.common.errors import Conflict
from streamvault.lake.location import TablePlace
from streamvault.layouts.object_keys import table_registration_key
from streamvault.manifests.format.jsonfile import File, decide_file, find_file


class Registration(File):
    """The file ``registered.json`` among a table's records, created by its first registration.

    Attributes:
        catalog: see `Catalog.identity`.
        table: the table's name there, ``DATABASE.NAME``.
    """

    format: Literal[1] = 1
    catalog: str
    table: str


def check_registration(place: TablePlace, catalog: str) -> None:
    """Check that a table is registered here, or nowhere yet.

    Args:
        place: the table.
        catalog: see `Catalog.identity`.

    Raises:
        Conflict: it is registered elsewhere.
        Damaged: the record cannot be read.
    """
    found = find_file(Registration, place.archive.store, _key(place))
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


def plain_address(uri: str) -> str:
    """Return a catalog's address without credentials, options, and the name of a database's driver."""
    parts = urlsplit(uri)
    return f"{parts.scheme.partition('+')[0]}://{parts.netloc.rpartition('@')[2].lower()}{parts.path.rstrip('/')}"


def _key(place: TablePlace) -> str:
    return place.archive.prefix + table_registration_key()


def _check_same(found: Registration, place: TablePlace, catalog: str) -> None:
    if (found.catalog, found.table) == (catalog, place.name):
        return
    record = place.archive.place.at(_key(place))
    raise Conflict(
        f"the table is registered as {found.table} in {found.catalog}, and maintenance there would delete the files of "
        f"{place.name} in {catalog}",
        where=place.location,
        todo=f"Create another table (--table NAME) or use another --root. If it has moved for good, drop it there "
        f"without its files, then delete {record}.",
    )
