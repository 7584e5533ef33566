"""Schemas of an archive, registered again in a group of Pravega's Schema Registry, in which events' ids mean the same.

A registry numbers a group's encodings from 0 on, in the order in which they are asked for, and gives no id twice. So
they are registered in the order of their ids, each when the one before it has got its own: whichever run is late or
beside another, the group has the first of them, and never others.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from streamvault.common.errors import Conflict, Usage
from streamvault.importer.reports import ImportOptions, ImportReport
from streamvault.manifests.manifest import SchemaGroup, SchemaVersion
from streamvault.sources.schemas import FORMATS, RegistryFailed, RegistryGroup, RegistryRejected
from streamvault.sources.sources import ArchiveState

_ANY: dict[str, Any] = {"policy": "AllowAny"}
"""Under which all schemas are registered: the group's own policy may have come later, and reject the first of them."""

_TURNS: defaultdict[tuple[str, str], threading.RLock] = defaultdict(threading.RLock)
"""One lock for each group: archives of a scope may share a group, and must not see it half registered by another."""

_OTHER_GROUP = "Name a group that does not exist (--schema-group)."

_ANYTHING = {"serializationFormat": {"serializationFormat": "Any"}, "allowMultipleTypes": True}
"""What a group has if the archive does not say what it had."""


class NoSchemas(Usage):
    """An archive whose schemas are to be registered has recorded none."""


@dataclass
class ArchivedSchemas:
    """The schemas that an archive has recorded.

    Attributes:
        registry: the group where they are to be.
        noted: the schemas, under that group's name.
        missing: how many encodings the group lacked when it was looked at.
        is_complete: whether it lacked nothing.
        policy: the compatibility policy that it had; None if it did not exist.
        lacks_versions: whether it lacked a version of a schema.
    """

    registry: RegistryGroup
    noted: SchemaGroup
    missing: int = 0
    is_complete: bool = False
    policy: Any = None
    lacks_versions: bool = True

    @classmethod
    def of(cls, source: ArchiveState, options: ImportOptions) -> ArchivedSchemas | None:
        """Return what is to be registered with a target, if that was asked for; changes nothing.

        Raises:
            NoSchemas: the archive has recorded no schemas.
            Usage: the URL is not valid.
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
            raise NoSchemas("the archive has recorded no schemas", where=where, todo=todo)
        name = options.schema_group or noted.group
        found = cls(RegistryGroup(options.schemas, name), noted.model_copy(update={"group": name}))
        found.check()
        if (reason := found._unregistrable) and not found.is_complete:
            todo = "Omit --schemas; 'streamvault handoff --decode registry' needs no registry."
            raise Conflict(f"the schemas cannot be registered with their ids, as {reason}", where=where, todo=todo)
        return found

    @property
    def _versions(self) -> dict[tuple[str, str, int], SchemaVersion]:
        """Each version of each schema, the first ones first."""
        held = {one.key: one for one in (*self.noted.entries, *self.noted.unused)}
        return {key: held[key] for key in sorted(held, key=lambda key: (key[2], key))}

    @property
    def _unregistrable(self) -> str:
        """Why a registry would not give the ids: it counts them, and gives the same schema no second one."""
        held = self._versions
        lost = next((f"encoding {id_}" for id_, one in enumerate(self.noted.entries) if one.encoding != id_), "")
        versions = Counter((kind, name) for kind, name, _ in held)
        lost = lost or next((f"a schema of {name}" for kind, name, at in held if at >= versions[kind, name]), "")
        if lost:
            return f"the archive lacks {lost}"
        same = Counter((one.format, one.type, one.data) for one in held.values())
        return next((f"two versions of {name} are the same" for (_, name, _), count in same.items() if count > 1), "")

    def check(self) -> bool:
        """Check that the group has these schemas and encodings, or the first of them and no others.

        Returns:
            Whether the group exists.

        Raises:
            Conflict: it has others, or cannot have these.
            RegistryFailed: the registry cannot be asked.
        """
        with _TURNS[self.registry.url, self.registry.group]:
            held = self.registry.find()
        self.missing, self.is_complete = len(self.noted.entries), False
        if held is None:
            return False
        self.missing = max(0, self.missing - len(held.entries))
        theirs = {one.key for one in (*held.entries, *held.unused)}
        settings = _settings_of(held)
        self.policy = settings.get("compatibility")
        self.lacks_versions = not self._versions.keys() <= theirs
        is_open = self.policy == _ANY != self._settings()["compatibility"]  # as a run that was stopped leaves it
        # events need no schema without an encoding, unless none has one yet
        self.is_complete = not self.missing and (bool(self.noted.entries) or not (self.lacks_versions or is_open))
        reason = ""
        try:
            SchemaGroup.union([self.noted, held])
        except ValueError as error:
            reason = str(error)
        others = theirs - self._versions.keys()
        if not self.is_complete and others:
            _, name, version = min(others)
            reason = reason or f"version {version} of {name} is not the archive's"
        if reason:
            raise self._other(reason)
        if not self.is_complete and (reason := self._unacceptable(settings)):
            what = f"the registry's group cannot have the archive's schemas: {reason}"
            raise Conflict(what, where=self.registry.where, todo=_OTHER_GROUP)
        return True

    def _unacceptable(self, settings: dict[str, Any]) -> str:
        """Return what of a group's settings, which cannot be changed, is against the schemas; empty for nothing."""
        said, wanted = settings.get("serializationFormat"), self._versions.values()
        held = said if isinstance(said, dict) else {}
        kind = held.get("serializationFormat", "Any")
        name = kind if kind in FORMATS else held.get("fullTypeName")
        if kind != "Any" and any(one.format != name for one in wanted):
            return f"it is for {name} only"
        is_single = settings.get("allowMultipleTypes") is False
        return "it is for one type only" if is_single and len({one.type for one in wanted}) > 1 else ""

    def reported(self, report: ImportReport) -> ImportReport:
        """Return a report that has what is registered."""
        return replace(report, encodings=len(self.noted.entries), encodings_registered=self.missing)

    def register(self) -> None:
        """Register what the group lacks. After a kill, repeat the call.

        Raises:
            Conflict: the group has or gets others, or the registry does not accept a schema.
            RegistryFailed: the registry cannot be asked, or fails.
        """
        if not self.is_complete:
            with _TURNS[self.registry.url, self.registry.group]:
                self._register()

    def _register(self) -> None:
        settings, ask = self._settings(), self._change
        created = {"groupName": self.registry.name, "groupProperties": {**settings, "compatibility": _ANY}}
        try:
            ask("", "POST", created)
        except RegistryRejected:
            if not self.check():  # it was not there already
                raise
            if self.is_complete:
                return
            if self.policy is not None and self.lacks_versions:
                self._set_policy(self.policy, _ANY)
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
        policy = settings["compatibility"] if self.noted.settings else self.policy or _ANY
        self._set_policy(_ANY, policy)  # before the encodings, as a group that has these is complete
        for entry in self.noted.entries:
            body = {"versionInfo": infos[entry.key], "codecType": entry.codec}
            answer = ask("/encodings", "PUT", body)
            self._check_same(answer, "encodingId", entry.encoding, f"encoding {entry.encoding}")

    def _set_policy(self, was: Any, policy: Any) -> None:
        """Set the group's policy in the place of one that it may have; another, of whomever, stays."""
        if policy == was:
            return
        try:
            self._change("/compatibility", "PUT", {"compatibility": policy, "previousCompatibility": was})
        except RegistryRejected:
            held = self.registry.ask()
            if not isinstance(held, dict) or held.get("compatibility") == was:
                raise

    def _change(self, path: str, method: str, body: object) -> Any:
        """Ask for a change; one that is rejected says what to do."""
        try:
            return self.registry.ask(path, method, body)
        except RegistryRejected as error:
            todo = error.todo or f"Run the command again. {_OTHER_GROUP}"
            raise RegistryRejected(error.what, where=error.where, todo=todo) from None

    def _settings(self) -> dict[str, Any]:
        """Return the group's properties; of an archive without them, those that accept its schemas."""
        settings = _settings_of(self.noted)
        if {"serializationFormat", "compatibility"} <= settings.keys():
            return settings
        return {**_ANYTHING, "compatibility": _ANY}

    def _check_same(self, answer: Any, name: str, wanted: int, what: str) -> None:
        got = answer.get(name) if isinstance(answer, dict) else None
        if got is None:
            what = "the registry's answer to a change makes no sense"
            raise RegistryFailed(what, where=self.registry.where, todo="Run the command again.")
        if got != wanted:
            raise self._other(f"{what} of the archive was registered as {got}")

    def _other(self, reason: str) -> Conflict:
        what = f"the registry's group has different schemas: {reason}"
        return Conflict(what, where=self.registry.where, todo=_OTHER_GROUP)


def _settings_of(group: SchemaGroup) -> dict[str, Any]:
    """Return what is noted of a group's other properties."""
    with suppress(ValueError, RecursionError):
        settings = json.loads(group.settings)
        if isinstance(settings, dict):
            return settings
    return {}
