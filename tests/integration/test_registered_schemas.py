"""Schemas that an archive has recorded get the same ids in a real Schema Registry, whenever a run is killed."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from streamvault import export_stream, import_stream
from streamvault.common.errors import Conflict, Usage
from streamvault.importer.reports import ImportReport
from streamvault.importer.schemas import ArchivedSchemas
from streamvault.manifests.manifest import SchemaEntry, SchemaGroup, SchemaVersion
from streamvault.sources.schemas import RegistryGroup
from streamvault.streamstore.model import StreamName
from testkit.servers.schema_registry import SchemaRegistryServer
from testkit.small_archives import Vault

GZIP, SNAPPY = "application/x-gzip", "application/x-snappy-framed"
SETTINGS = {
    "allowMultipleTypes": True,
    "compatibility": {"policy": "Backward"},
    "properties": {"owner": "shop"},
    "serializationFormat": {"fullTypeName": "Avro", "serializationFormat": "Avro"},
}


def data(*fields: str, name: str = "Order") -> str:
    made = [{"name": field, "type": "int"} for field in fields]
    return b64encode(json.dumps({"type": "record", "name": name, "fields": made}).encode()).decode()


def entry(number: int, version: int, codec: str = "", schema: str = "") -> SchemaEntry:
    schema = schema or data(*"abc"[: version + 1])
    return SchemaEntry(encoding=number, type="Order", format="Avro", version=version, data=schema, codec=codec)


def noted(*entries: SchemaEntry, **fields: Any) -> SchemaGroup:
    return SchemaGroup(group="g", entries=entries, **fields)


JSON = {"fullTypeName": "Json", "serializationFormat": "Json"}
REFUND = SchemaVersion(type="Refund", format="Avro", version=0, data=data("id", name="Refund"))
NOTED = noted(
    entry(0, 1, GZIP), entry(1, 0), entry(2, 1), entry(3, 0, SNAPPY), unused=(REFUND,), settings=json.dumps(SETTINGS)
)
"""The second version is not compatible with the first, and came into use first."""


class Killed(BaseException):
    """A run ends here."""


@pytest.fixture
def url(schema_registry: SchemaRegistryServer) -> str:
    return schema_registry.uri


def registered(url: str, group: str, schemas: SchemaGroup = NOTED) -> SchemaGroup | None:
    """Register schemas in a group, and return what it has."""
    found = ArchivedSchemas(RegistryGroup(url, group), schemas.model_copy(update={"group": group}))
    found.check()
    found.register()
    return RegistryGroup(url, group).find()


def as_noted(group: str) -> SchemaGroup:
    return NOTED.model_copy(update={"group": group})


def test_ids_are_the_same_wherever_a_run_is_killed(url: str, scope_name: str) -> None:
    ask, writes = RegistryGroup.ask, 0

    def killed(self: RegistryGroup, path: str = "", method: str = "GET", body: object = None) -> Any:
        nonlocal writes
        writes += method != "GET"
        if method != "GET" and writes > at:
            if sent:
                ask(self, path, method, body)
            raise Killed
        return ask(self, path, method, body)

    for number in range(22):
        at, sent = divmod(number, 2)
        writes, group = 0, f"{scope_name}-{number}"
        with patch.object(RegistryGroup, "ask", killed), pytest.raises(Killed):
            registered(url, group)
        assert registered(url, group) == as_noted(group)
    assert at == 10, "a group, three schemas, two codecs, a policy and four encodings are written"


def test_schemas_of_every_format_are_registered(url: str, scope_name: str) -> None:
    plain = b64encode(b'{"type": "object"}').decode()
    kinds = [("Json", plain), ("mine", ""), ("other", "AA=="), ("Avro", data("a"))]
    schemas = noted(
        *(
            SchemaEntry(encoding=number, type="Order", format=kind, version=0, data=content, codec="")
            for number, (kind, content) in enumerate(kinds)
        )
    )
    found = registered(url, scope_name, schemas)
    assert found is not None
    assert found.entries == schemas.entries
    assert json.loads(found.settings)["serializationFormat"]["serializationFormat"] == "Any"


def test_two_runs_at_once_are_one(url: str, scope_name: str) -> None:
    found: list[SchemaGroup | None] = []
    # as in processes of their own: in one, a run waits for the others of the same URL
    runs = [
        threading.Thread(target=lambda each: found.append(registered(each, scope_name)), args=(url + number * "/",))
        for number in range(4)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert found == 4 * [as_noted(scope_name)]


@pytest.mark.parametrize(
    "other",
    [
        noted(entry(0, 0, schema=data("x"))),
        noted(entry(0, 0), entry(1, 0, GZIP)),
        noted(entry(0, 0, GZIP)),
        noted(SchemaEntry(encoding=0, codec="", **REFUND.model_dump())),
        noted(
            NOTED.entries[0],
            unused=(entry(0, 0), REFUND.model_copy(update={"type": "Other", "data": data(name="Other")})),
        ),
    ],
)
def test_a_group_with_other_schemas_stays_as_it_is(url: str, scope_name: str, other: SchemaGroup) -> None:
    before = registered(url, scope_name, other)
    with pytest.raises(
        Conflict, match=r"the registry's group has different schemas: .* Name a group that does not exist"
    ):
        registered(url, scope_name)
    assert RegistryGroup(url, scope_name).find() == before


def test_an_id_that_a_writer_takes_meanwhile_is_a_conflict(url: str, scope_name: str) -> None:
    ask = RegistryGroup.ask

    def taken(self: RegistryGroup, path: str = "", method: str = "GET", body: object = None) -> Any:
        if path == "/encodings":
            version = {"type": "Refund", "version": 0, "id": 1, "serializationFormat": "Avro"}
            ask(self, path, method, {"versionInfo": version, "codecType": ""})
        return ask(self, path, method, body)

    with (
        patch.object(RegistryGroup, "ask", taken),
        pytest.raises(Conflict, match="encoding 0 of the archive was registered as 1") as caught,
    ):
        registered(url.replace("//", "//anna:secret@"), scope_name)
    assert "secret" not in str(caught.value)


def test_what_is_no_registry_is_said(url: str, scope_name: str) -> None:
    with pytest.raises(Conflict, match=r"the registry answers 404 Not Found to a change of the group: .* without /v1"):
        registered(f"{url}/elsewhere", scope_name)


def empty(url: str, group: str, **settings: Any) -> None:
    made = {**SETTINGS, **settings}
    RegistryGroup(url, group).ask("", "POST", {"groupName": group, "groupProperties": made})


@pytest.mark.parametrize("policy", ["DenyAll", "Full"])
def test_an_empty_group_gets_schemas_whatever_its_policy(url: str, scope_name: str, policy: str) -> None:
    empty(url, scope_name, compatibility={"policy": policy})
    assert registered(url, scope_name) == as_noted(scope_name)


def test_a_newer_archive_completes_the_group_of_an_older_one(url: str, scope_name: str) -> None:
    registered(url, scope_name, noted(entry(0, 0), settings=json.dumps(SETTINGS)))
    newer = noted(entry(0, 0), entry(1, 1), settings=json.dumps(SETTINGS))
    found = registered(url, scope_name, newer)
    assert found == newer.model_copy(update={"group": scope_name})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"allowMultipleTypes": False}, "it is for one type only"),
        ({"serializationFormat": JSON, "compatibility": {"policy": "AllowAny"}}, "it is for Json only"),
    ],
)
def test_a_group_that_cannot_have_the_schemas_stays_empty(
    url: str, scope_name: str, settings: dict[str, Any], reason: str
) -> None:
    empty(url, scope_name, **settings)
    with pytest.raises(Conflict, match=reason):
        registered(url, scope_name)
    found = RegistryGroup(url, scope_name).find()
    assert found is not None
    assert (found.entries, found.unused) == ((), ())


def test_a_group_that_has_grown_since_is_left_alone(url: str, scope_name: str) -> None:
    later = registered(url, scope_name, noted(*NOTED.entries, entry(4, 2), unused=(REFUND,)))
    assert registered(url, scope_name) == later


def test_an_import_registers_what_an_export_has_recorded(url: str, scope_name: str, tmp_path: Path) -> None:
    vault, group = Vault(tmp_path), f"space/{scope_name}"
    vault.create()
    vault.add(b"event")
    archive = export_stream(vault.uri(), vault.root, master="inline").archive
    with pytest.raises(Usage, match="the archive has recorded no schemas"):
        restored(vault, archive, "new", schemas=url)
    assert registered(url, scope_name) is not None
    export_stream(vault.uri(), vault.root, master="inline", schemas=url, schema_group=scope_name)
    planned = restored(vault, archive, "new", schemas=url, schema_group=group, dry_run=True)
    assert (planned.encodings, planned.encodings_registered) == (4, 4)
    assert RegistryGroup(url, group).find() is None
    for again in (4, 0):
        report = restored(vault, archive, "new", schemas=url, schema_group=group)
        assert (report.encodings, report.encodings_registered) == (4, again)
    assert RegistryGroup(url, group).find() == as_noted(group)
    export_stream(vault.uri(), f"{vault.root}/b", master="inline", schemas=url, schema_group=group)
    other = registered(url, f"{scope_name}-other", noted(entry(0, 0)))
    assert other is not None
    with pytest.raises(Conflict, match="the registry's group has different schemas: encoding 0 of"):
        restored(vault, archive, "late", schemas=url, schema_group=other.group)


def restored(vault: Vault, archive: str, name: str, **options: Any) -> ImportReport:
    return import_stream(archive, vault.uri(StreamName("scope", name)), master="inline", **options)
