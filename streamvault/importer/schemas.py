"""Schemas of an archive, registered again in a group of Pravega's Schema Registry, in which events' ids mean the same.

A registry numbers a group's encodings from 0 on, in the order in which they are asked for, and gives no id twice. So
they are registered in the order of their ids, each when the one before it has got its own: whichever run is late or
beside another, the group has the first of them, and never others.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from streamvault.common.errors import Conflict, Usage
from streamvault.importer.reports import ImportOptions, ImportReport
from streamvault.manifests.manifest import SchemaGroup, SchemaVersion
from streamvault.sources.schemas import FORMATS, RegistryGroup, RegistryRejected
from streamvault.sources.sources import ArchiveState

_ANY: dict[str, Any] = {"policy": "AllowAny"}
"""Under which all schemas are registered: the group's own policy may have come later, and reject the first of them."""


_ANYTHING = {"serializationFormat": {"serializationFormat": "Any"}, "allowMultipleTypes": True}
"""What a group has if the archive does not say what it had."""


@dataclass
class ArchivedSchemas:
    """The schemas that an archive has recorded.

    Attributes:
        registry: the group where they are to be.
        noted: the schemas, under that group's name.
        missing: how many encodings the group lacked when it was looked at.
    """

    registry: RegistryGroup
    noted: SchemaGroup
    missing: int = 0

    @classmethod
    def of(cls, source: ArchiveState, options: ImportOptions) -> ArchivedSchemas | None:
        """Return what is to be registered with a target, if that was asked for; changes nothing.

        Raises:
            Usage: the URL is not valid, or the archive has recorded no schemas.
            Conflict: they cannot get their ids, or the group has others.
            RegistryFailed: the registry cannot be asked.
        """
        if options.schemas is None:
            return None
        where = source.archive.uri
        try:
            manifests = [one.manifest for one in source.history.generations]
            covered = [one.schemas for one in manifests]  # by the fingerprints
            groups = covered if options.fingerprints else source.archive.noted_schemas(manifests)
            noted = SchemaGroup.union(groups)
        except ValueError as error:
            raise Conflict("generations of the archive have recorded different schemas", where=str(error)) from None
        if noted is None:
            todo = "Omit --schemas; only an export with --schemas records them."
            raise Usage("the archive has recorded no schemas", where=where, todo=todo)
        name = options.schema_group or noted.group
        found = cls(RegistryGroup(options.schemas, name), noted.model_copy(update={"group": name}))
        ids = [one.encoding for one in noted.entries]
        versions = Counter((kind, name) for kind, name, _ in found._versions)
        lost = next((f"encoding {number}" for number, one in enumerate(ids) if one != number), "")
        lost = lost or next((f"a schema of {one[1]}" for one in found._versions if one[2] >= versions[one[:2]]), "")
        if lost:
            todo = "Omit --schemas; 'streamvault handoff --decode registry' needs no registry."
            what = f"the schemas cannot be registered with their ids, as the archive lacks {lost}"
            raise Conflict(what, where=where, todo=todo)
        found.check()
        return found

    @property
    def _versions(self) -> dict[tuple[str, str, int], SchemaVersion]:
        """Each version of each schema, the first ones first."""
        held = {one.key: one for one in (*self.noted.entries, *self.noted.unused)}
        return {key: held[key] for key in sorted(held, key=lambda key: (key[2], key))}

    def check(self) -> bool:
        """Check that the group has these schemas and encodings, or the first of them and no others.

        Returns:
            Whether the group exists.

        Raises:
            Conflict: it has others.
            RegistryFailed: the registry cannot be asked.
        """
        held = self.registry.find()
        self.missing = len(self.noted.entries)
        if held is None:
            return False
        self.missing = max(0, self.missing - len(held.entries))
        reason = ""
        try:
            SchemaGroup.union([self.noted, held])
        except ValueError as error:
            reason = str(error)
        others = {one.key for one in (*held.entries, *held.unused)} - self._versions.keys()
        if self.missing and others:
            _, name, version = min(others)
            reason = reason or f"version {version} of {name} is not the archive's"
        if reason:
            raise self._other(reason)
        return True

    def reported(self, report: ImportReport) -> ImportReport:
        """Return a report that has what is registered."""
        return replace(report, encodings=len(self.noted.entries), encodings_registered=self.missing)

    def register(self) -> None:
        """Register what the group lacks. After a kill, repeat the call.

        Raises:
            Conflict: the group has or gets others, or the registry does not accept a schema.
            RegistryFailed: the registry cannot be asked, or fails.
        """
        if not self.missing:
            return
        settings, ask = self._settings(), self.registry.ask
        created = {"groupName": self.registry.name, "groupProperties": {**settings, "compatibility": _ANY}}
        try:
            ask("", "POST", created)
        except RegistryRejected:
            if not self.check():  # it was not there already
                raise
        infos: dict[tuple[str, str, int], Any] = {}
        for key, one in self._versions.items():
            kind = one.format if one.format in FORMATS else "Custom"
            body = {
                "type": one.type,
                "serializationFormat": {"serializationFormat": kind, "fullTypeName": one.format},
                "schemaData": one.data,
            }
            infos[key] = ask("/schemas", "POST", body)
            self._check_same(infos[key], "version", one.version, f"version {one.version} of {one.type}")
        for codec in dict.fromkeys(one.codec for one in self.noted.entries if one.codec):
            ask("/codecTypes", "POST", {"name": codec})
        self._set_policy(settings["compatibility"])  # before the encodings, as a group that has these is complete
        for entry in self.noted.entries:
            body = {"versionInfo": infos[entry.key], "codecType": entry.codec}
            answer = ask("/encodings", "PUT", body)
            self._check_same(answer, "encodingId", entry.encoding, f"encoding {entry.encoding}")

    def _set_policy(self, policy: Any) -> None:
        """Set the group's policy in the place of the one that it was created with; another, of whomever, stays."""
        try:
            self.registry.ask("/compatibility", "PUT", {"compatibility": policy, "previousCompatibility": _ANY})
        except RegistryRejected:
            held = self.registry.ask()
            if not isinstance(held, dict) or held.get("compatibility") == _ANY:
                raise

    def _settings(self) -> dict[str, Any]:
        """Return the group's properties; of an archive without them, those that accept its schemas."""
        with suppress(ValueError, RecursionError):
            settings = json.loads(self.noted.settings)
            if isinstance(settings, dict) and {"serializationFormat", "compatibility"} <= settings.keys():
                return settings
        return {**_ANYTHING, "compatibility": _ANY}

    def _check_same(self, answer: Any, name: str, wanted: int, what: str) -> None:
        got = answer.get(name) if isinstance(answer, dict) else None
        if got != wanted:
            raise self._other(f"{what} of the archive was registered as {got}")

    def _other(self, reason: str) -> Conflict:
        todo = "Name a group that does not exist (--schema-group)."
        return Conflict(f"the registry's group has different schemas: {reason}", where=self.registry.where, todo=todo)
