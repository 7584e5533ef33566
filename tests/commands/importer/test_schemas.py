"""Registering the schemas of an archive in a group that is not as it should be, and of the archives of a scope."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamvault import export_stream
from streamvault.cli import main
from streamvault.common.errors import Conflict
from streamvault.importer.schemas import ArchivedSchemas
from streamvault.manifests.manifest import SchemaEntry, SchemaGroup, SchemaVersion
from streamvault.sources.schemas import RegistryFailed, RegistryGroup, RegistryRejected
from testkit.scenes import Scopes
from testkit.small_archives import Vault, publish_with
from tests.unit.lake.test_registry import Group

ANY, BACKWARD = {"policy": "AllowAny"}, {"policy": "Backward"}
SETTINGS: dict[str, Any] = {
    "serializationFormat": {"serializationFormat": "Json", "fullTypeName": "Json"},
    "allowMultipleTypes": True,
    "compatibility": BACKWARD,
}


class Fake:
    """A registry with one group, which accepts new schemas under the policy AllowAny only."""

    def __init__(self, settings: dict[str, Any] | None = None) -> None:
        self.settings = settings
        self.versions: list[tuple[str, str]] = []
        self.encodings: list[tuple[int, str]] = []

    def ask(self, path: str = "", method: str = "GET", body: Any = None) -> Any:
        time.sleep(0.002)  # another run goes on
        if method == "GET":
            return self._get(path)
        if path == "":
            if self.settings is not None:
                raise RegistryRejected("409")
            self.settings = body["groupProperties"]
        assert self.settings is not None
        if path == "/schemas":
            schema = (body["type"], body["schemaData"])
            if schema not in self.versions:
                if self.settings["compatibility"] != ANY:
                    raise RegistryRejected("409")
                self.versions.append(schema)
            return self._version(self.versions.index(schema))["versionInfo"]
        if path == "/compatibility":
            if self.settings["compatibility"] != body["previousCompatibility"]:
                raise RegistryRejected("409")
            self.settings = {**self.settings, "compatibility": body["compatibility"]}
        if path == "/encodings":
            encoding = (body["versionInfo"]["id"], body["codecType"])
            self.encodings += [] if encoding in self.encodings else [encoding]
            return {"encodingId": self.encodings.index(encoding)}
        return {}

    def _get(self, path: str) -> Any:
        if path == "" or self.settings is None:
            return self.settings
        if path == "/schemas/versions":
            return {"schemas": [self._version(number) for number in range(len(self.versions))]}
        number = int(path.rpartition("/")[2])
        if number >= len(self.encodings):
            return None
        version, codec = self.encodings[number]
        return {**self._version(version), "codecType": {"name": codec}}

    def _version(self, number: int) -> dict[str, Any]:
        kind, data = self.versions[number]
        version = [one for one, _ in self.versions[:number]].count(kind)
        info = {"serializationFormat": "Json", "version": version, "id": number}
        schema = {"type": kind, "schemaData": data, "serializationFormat": {"serializationFormat": "Json"}}
        return {"schemaInfo": schema, "versionInfo": info}


def noted(count: int, **fields: Any) -> SchemaGroup:
    """A group with a type's versions, each with an encoding."""
    same = {"type": "x", "format": "Json", "codec": ""}
    entries = (SchemaEntry(encoding=number, version=number, data=f"AAA{number}", **same) for number in range(count))
    return SchemaGroup(group="group", entries=tuple(entries), **{"settings": json.dumps(SETTINGS), **fields})


def registering(schemas: SchemaGroup) -> ArchivedSchemas:
    found = ArchivedSchemas(RegistryGroup("http://registry", "group"), schemas)
    found.check()
    return found


@pytest.mark.parametrize("held", [{"policy": "DenyAll"}, ANY])
def test_a_group_gets_the_recorded_policy_when_it_has_the_schemas(
    monkeypatch: pytest.MonkeyPatch, held: dict[str, str]
) -> None:
    fake = Fake({**SETTINGS, "compatibility": held})
    monkeypatch.setattr(RegistryGroup, "ask", fake.ask)
    for count in (1, 3):  # an older archive first
        registering(noted(count)).register()
        assert (len(fake.encodings), fake.settings) == (count, SETTINGS)


def test_a_group_keeps_its_policy_if_none_was_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(SETTINGS)
    monkeypatch.setattr(RegistryGroup, "ask", fake.ask)
    registering(noted(2, settings="")).register()
    assert (len(fake.encodings), fake.settings) == (2, SETTINGS)


OTHERS = [
    ({"serializationFormat": {"serializationFormat": "Avro"}}, "it is for Avro only"),
    ({"serializationFormat": {"serializationFormat": "Custom", "fullTypeName": "mine"}}, "it is for mine only"),
    ({"allowMultipleTypes": False}, "it is for one type only"),
]


@pytest.mark.parametrize(("settings", "reason"), OTHERS)
def test_a_group_that_cannot_have_the_schemas_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], reason: str
) -> None:
    fake = Fake({**SETTINGS, **settings})
    monkeypatch.setattr(RegistryGroup, "ask", fake.ask)
    other = SchemaVersion(type="y", format="Json", version=0, data="AAAA")
    with pytest.raises(Conflict, match=f"{reason}.*Name a group that does not exist"):
        registering(noted(1, unused=(other,)))


def test_a_rejected_change_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(SETTINGS)
    monkeypatch.setattr(RegistryGroup, "ask", fake.ask)
    found = registering(noted(1))
    monkeypatch.setattr(ArchivedSchemas, "_set_policy", lambda *_: None)
    with pytest.raises(RegistryRejected, match=r"Run the command again\. .* \(--schema-group"):
        found.register()


def test_archives_that_share_a_group_wait_for_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, done = Fake(), list[int]()
    monkeypatch.setattr(RegistryGroup, "ask", fake.ask)

    def run(count: int) -> None:
        registering(noted(count)).register()
        done.append(count)

    threads = [threading.Thread(target=run, args=(count,)) for count in (2, 6, 4, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [2, 3, 4, 6]
    assert (len(fake.versions), len(fake.encodings)) == (6, 6)


def test_a_group_without_encodings_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, unused = Fake(), SchemaVersion(type="x", format="Json", version=0, data="AAAA")
    monkeypatch.setattr(RegistryGroup, "ask", fake.ask)
    for _ in range(2):
        registering(noted(0, unused=(unused,))).register()
        assert (fake.versions, fake.settings) == ([("x", "AAAA")], SETTINGS)


UNUSED = SchemaVersion(type="x", format="Json", version=0, data="AAAA")


@pytest.mark.parametrize("schemas", [noted(2), noted(0, unused=(UNUSED,)), noted(0)], ids=["two", "unused", "none"])
def test_a_stopped_run_leaves_no_policy_of_its_own_for_good(
    monkeypatch: pytest.MonkeyPatch, schemas: SchemaGroup
) -> None:
    for stop in range(12):
        fake, left = Fake(), iter(range(stop))

        def ask(self: Fake, left: Iterator[int], *request: Any) -> Any:
            if request[1:2] and next(left, None) is None:
                raise KeyboardInterrupt
            return self.ask(*request)

        monkeypatch.setattr(RegistryGroup, "ask", partial(ask, fake, left))
        with suppress(KeyboardInterrupt):
            registering(schemas).register()
        monkeypatch.setattr(RegistryGroup, "ask", fake.ask)
        registering(schemas).register()
        assert fake.settings == SETTINGS


def test_a_group_that_lacks_only_encodings_accepts_no_other_schema_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, policies = Fake(), list[object]()
    monkeypatch.setattr(RegistryGroup, "ask", fake.ask)
    registering(noted(2)).register()
    del fake.encodings[1:]
    monkeypatch.setattr(ArchivedSchemas, "_set_policy", lambda *given: policies.append(given[2]))
    registering(noted(2)).register()
    assert (len(fake.encodings), policies) == (2, [BACKWARD])


def test_half_an_answer_to_a_change_is_the_registrys_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RegistryGroup, "_read", lambda *_: b"")  # what is read of it, if all of its body is missing
    with pytest.raises(RegistryFailed, match="makes no sense"):
        ArchivedSchemas(RegistryGroup("http://registry", "group"), noted(1)).register()


def test_a_schema_with_two_versions_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = Vault(tmp_path, f"file://{tmp_path}/vault")
    vault.create()
    vault.add(b"event")
    first, second = noted(2).entries
    again = second.model_copy(update={"data": first.data})  # it was deleted and registered again
    publish_with(vault, schemas=noted(2).model_copy(update={"entries": (first, again)}))
    monkeypatch.setattr(RegistryGroup, "ask", Fake().ask)
    arguments = ["import", vault.archive, f"{vault.uri()}-2", "--dry-run", "--master", "inline", "--schemas"]
    assert main([*arguments, "http://registry"]) == 4
    assert "cannot be registered with their ids, as two versions of x are the same" in capsys.readouterr().err


def test_archives_of_a_scope_without_schemas_are_restored(scopes: Scopes) -> None:
    with Group(1, version=0) as server:
        export_stream(scopes.uri("shop/a"), scopes.root, schemas=server.url, schema_group="group", master="inline")
        export_stream(scopes.uri("shop/b"), scopes.root, master="inline")
        code, report = scopes.run("import", f"{scopes.root}/shop/", scopes.uri("new/"), "--schemas", server.url)
        one = [f"{scopes.root}/shop/b", scopes.uri("new/one"), "--schemas", server.url]
        assert main(["import", *one]) == 2
    assert code == 0
    warned = [bool(each["result"]["warnings"]) for each in report["outcomes"]]
    assert warned == [False, True], report


def test_an_archive_that_a_file_names_must_have_schemas(scopes: Scopes, tmp_path: Path) -> None:
    archive = export_stream(scopes.uri("shop/b"), scopes.root, master="inline").archive
    declared = tmp_path / "declared.toml"
    entry = f'[[streams]]\narchive = "{archive}"\nstream = "{scopes.uri("new/b")}"\n'
    declared.write_text(f'schemas = "http://127.0.0.1:9"\n{entry}')
    code, report = scopes.run("import", "--config", str(declared))
    (outcome,) = report["outcomes"]
    assert (code, outcome["exit_code"]) == (2, 2)
    assert outcome["failure"]["what"] == "the archive has recorded no schemas"
