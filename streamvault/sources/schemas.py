"""A client of Pravega's Schema Registry: what the encodings' ids before a group's events stand for."""

from __future__ import annotations

import itertools
import json
import re
import time
from base64 import b64encode
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote, unquote, urlsplit

from pydantic import ValidationError

from streamvault.common.errors import Conflict, Failed, Usage
from streamvault.manifests.manifest import MAX_SCHEMAS, SchemaEntry, SchemaGroup, SchemaVersion
from streamvault.streamstore.model import StreamName

TIMEOUT, DEADLINE = 10.0, 60.0
"""Seconds for each step of a request, and for all of it."""

FORMATS = ("Avro", "Protobuf", "Json")
"""The formats that a registry knows; another one is ``Custom`` with a name."""

LARGEST_ANSWER = 16 * 1024 * 1024

WITHOUT_V1 = "Give the address of a Pravega Schema Registry, without /v1."


class RegistryFailed(Failed):
    """The Schema Registry cannot be reached, or its answer cannot be used."""


class RegistryUnavailable(RegistryFailed):
    """The Schema Registry does not answer, throttles or fails. A later attempt may succeed."""

    transient = True


class NoSuchGroup(Usage):
    """The Schema Registry has no such group."""


class RegistryRejected(Conflict):
    """The Schema Registry rejects a change."""


def needless_group(schemas: str | None, group: str | None) -> tuple[str, ...]:
    """Return a warning if a group is named without its registry, which is neither asked nor changed then."""
    return ("--schema-group has no effect without --schemas URL",) if group and not schemas else ()


def needless_registry(registry: str | None, group: str | None) -> tuple[str, ...]:
    """Return a warning if a registry or its group is named for events that are not decoded by its schemas.

    It is no error: a registry may be in the environment of every command.
    """
    is_needless = registry is not None or group is not None
    return ("--registry and --group have no effect without --decode registry",) if is_needless else ()


@dataclass
class RegistryGroup:
    """A group in a Schema Registry, during one run.

    Attributes:
        url: the registry, ``http[s]://[USER:PASSWORD@]HOST[:PORT]``.
        group: ``[NAMESPACE/]GROUP``.
        seen: the encodings that the run has got.
        asked: whether a plan of the run has them.
        problem: why a plan was made without them the last time that they were asked for; empty if it has them.
    """

    url: str
    group: str
    seen: tuple[SchemaEntry, ...] = ()
    asked: bool = False
    problem: str = ""

    def __post_init__(self) -> None:
        """Check the URL.

        Raises:
            Usage: it is not valid.
        """
        is_valid: object = False
        with suppress(ValueError):
            parts = urlsplit(self.url)
            is_valid = parts.port != 0 and parts.hostname and not parts.query and not parts.fragment
            is_valid = is_valid and "@" not in parts.path  # what is before it would be a password with a slash
        if not is_valid or parts.scheme not in {"http", "https"}:
            todo = "Use http://HOST:PORT or https://…; in a password, / is %2F."
            raise Usage("not the URL of a Schema Registry", where=self._shown, todo=todo)

    @property
    def name(self) -> str:
        """The group's name, without its namespace."""
        return self.group.rpartition("/")[2]

    @property
    def where(self) -> str:
        """The group in messages."""
        return f"{self._shown} {self.group}"

    @property
    def _shown(self) -> str:
        """The URL for messages, without what may be a login, even in a URL that is not valid."""
        return re.sub(r"(?s)^(https?://)?.*@", r"\1", self.url)

    def noted(self, known: SchemaGroup | None = None) -> SchemaGroup:
        """Return all schemas and encodings that the group has now, or that are known already.

        The first time in a run, all encodings are asked for; later, the newest one of these and those behind it.

        Args:
            known: what an archive has noted.

        Raises:
            Conflict: the group lacks a known encoding or has another schema for it, as in a registry that was set up
                anew.
            NoSuchGroup: there is no such group, and nothing of it is known.
            RegistryFailed: the registry cannot be asked, or has too many encodings or too large ones.
        """
        found = self.find()
        if found is None and known is None:
            todo = "Give the events' group, [NAMESPACE/]GROUP, with --group or --schema-group."
            has_version = urlsplit(self.url).path.rstrip("/").endswith("/v1")
            raise NoSuchGroup(
                "the registry has no such group", where=self.where, todo=WITHOUT_V1 if has_version else todo
            )
        found = found or SchemaGroup(group=self.group, entries=())  # one that is gone has lost all that is known
        todo = "Name the registry and the group that the events were written with."
        try:
            held = SchemaGroup.union([known, found]) or found
        except ValidationError as error:
            raise self._too_large(error) from None
        except ValueError as error:
            todo += " If the archive has recorded others by mistake, export to another line (--line)."
            raise Conflict("the registry's schemas differ from the archive's", where=str(error), todo=todo) from None
        if len(held.entries) > len(found.entries):
            what = "the registry has fewer encodings than the archive"
            todo += " 'streamvault import --schemas' into a new stream registers them again."
            raise Conflict(what, where=f"{self.where}: {len(found.entries)} of {len(held.entries)}", todo=todo)
        return held

    def find(self) -> SchemaGroup | None:
        """Return what the group has, as `noted`; None if it does not exist.

        Raises:
            Conflict: an encoding is not what it was earlier in this run.
            RegistryFailed: as for `noted`.
        """
        settings, listed = self.ask(), None
        if settings is not None:
            listed = self.ask("/schemas/versions")
        if listed is None:
            return None
        seen = [*self.seen]
        try:
            versions = [_version(one) for one in listed["schemas"]]
            # ids are given out one after the other, and that of a deleted schema stays
            for number in itertools.count(max(0, len(seen) - 1)):
                entry = self._encoding(number, self.seen)
                if entry is None:
                    break
                seen[number:] = [entry]
                if number >= MAX_SCHEMAS:
                    what = f"the group has more than {MAX_SCHEMAS:,} encodings"
                    raise RegistryFailed(what, where=self.where, todo="Omit --schemas: they cannot be recorded.")
            if seen and not self.seen:  # or there would be nothing to compare with
                self._encoding(0, seen)
            noted = json.dumps(settings, sort_keys=True)
        except (KeyError, TypeError, ValidationError, RecursionError):
            raise self._senseless() from None
        self.seen = tuple(seen)
        used = {one.key for one in seen}
        try:
            return SchemaGroup(
                group=self.group,
                entries=self.seen,
                unused=tuple(sorted((one for one in versions if one.key not in used), key=lambda one: one.key)),
                settings=noted,
            )
        except ValidationError as error:
            raise self._too_large(error) from None

    def _encoding(self, number: int, seen: Sequence[SchemaEntry]) -> SchemaEntry | None:
        """Return an encoding, None if there is none; a `Conflict` if it is not what was seen."""
        answer = self.ask(f"/encodings/{number}")
        entry = None if answer is None else _entry(number, answer)
        if number < len(seen) and entry != seen[number]:
            what = f"encoding {number} is not what it was a moment ago"
            raise Conflict(what, where=self.where, todo="Make sure that nothing is setting up the registry again.")
        return entry

    def _too_large(self, error: ValidationError) -> RegistryFailed:
        return RegistryFailed("the group cannot be recorded", where=error.errors()[0]["msg"])

    def _senseless(self) -> RegistryFailed:
        todo = "Check that the URL is that of a Pravega Schema Registry."
        return RegistryFailed("the registry's answer makes no sense", where=self._shown, todo=todo)

    def ask(self, path: str = "", method: str = "GET", body: object = None) -> Any:
        """Return the answer to a request for a part of the group; None if what is read does not exist.

        Raises:
            RegistryRejected: the registry does not change what is to be changed.
            RegistryUnavailable: it does not answer, throttles or fails.
            RegistryFailed: it cannot be asked, or its answer makes no sense.
        """
        from http.client import HTTPException, IncompleteRead  # noqa: PLC0415  (most commands make no such request)
        from urllib.error import HTTPError  # noqa: PLC0415

        try:
            answer = self._read(path, method, body)
            return json.loads(answer) if answer or method == "GET" else {}
        except HTTPError as error:
            if error.code == 404 and method == "GET":
                return None
            what = f"the registry answers {error.code} {error.reason}"
            if error.code == 429 or error.code >= 500:
                raise RegistryUnavailable(what, where=self._shown) from None
            if method != "GET" and error.code not in {401, 403}:
                todo = WITHOUT_V1 if error.code in {404, 405} else ""
                raise RegistryRejected(f"{what} to a change of the group", where=self.where, todo=todo) from None
            todo = "Check that the URL is that of a Pravega Schema Registry."
            if error.code == 401:
                has_login = "@" in urlsplit(self.url).netloc
                todo = "Check the login." if has_login else "Put USER:PASSWORD@ before the host."
            elif error.code == 403:
                todo = "Use a login that has the right to the group."
            raise RegistryFailed(what, where=self._shown, todo=todo) from None
        except OSError as error:
            reason = getattr(error, "reason", error)
            reason = getattr(reason, "strerror", None) or reason
            todo = "Check that it is running, and that the URL is right."
            raise RegistryUnavailable(
                f"the registry does not answer ({reason})", where=self._shown, todo=todo
            ) from None
        except IncompleteRead:
            raise RegistryUnavailable("the registry's answer ends early", where=self._shown) from None
        except (ValueError, RecursionError, HTTPException):
            raise self._senseless() from None

    def _read(self, path: str, method: str, body: object) -> bytes:
        from http.client import IncompleteRead  # noqa: PLC0415
        from urllib.error import HTTPError  # noqa: PLC0415
        from urllib.request import HTTPRedirectHandler, Request, build_opener  # noqa: PLC0415

        class NoRedirects(HTTPRedirectHandler):
            """The login is for this server only."""

            def redirect_request(self, *_: Any) -> None:
                """See the base class."""

        parts = urlsplit(self.url)
        namespace = self.group.rpartition("/")[0]
        where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}/v1/groups"
        within = f"?namespace={quote(namespace, safe='')}" if namespace else ""
        is_new = (method, path) == ("POST", "")  # whose name is in the body
        request = Request(  # noqa: S310  (http or https)
            f"{where}{'' if is_new else '/' + quote(self.name, safe='') + path}{within}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            request.add_header("Authorization", f"Basic {b64encode(login.encode()).decode()}")
        data, until = bytearray(), time.monotonic() + DEADLINE
        try:
            opened = build_opener(NoRedirects).open(request, timeout=TIMEOUT)
        except HTTPError as error:
            if error.code == 404 and path.startswith("/encodings/") and error.read(1):
                raise self._senseless() from None  # not the registry's, which has no text for an id without an encoding
            raise
        with opened as answer:
            while len(data) <= LARGEST_ANSWER and time.monotonic() < until:
                block = answer.read1(1 << 16)
                data += block
                if not block and answer.length:
                    raise IncompleteRead(b"")
                if not block:
                    return bytes(data)
        if len(data) > LARGEST_ANSWER:
            raise RegistryFailed(f"the registry's answer has more than {LARGEST_ANSWER:,} bytes", where=self._shown)
        raise RegistryUnavailable("the registry's answer does not end", where=self._shown)


@dataclass(frozen=True, slots=True)
class Encodings:
    """What says how a stream's events are encoded: what its archive has noted, and a registry.

    Attributes:
        group: the events' group.
        noted: what the archive has noted; None if it has noted nothing.
        registry: the group in a registry; None to ask none.
    """

    group: str
    noted: SchemaGroup | None
    registry: RegistryGroup | None

    @classmethod
    def of(cls, stream: StreamName, noted: Iterable[SchemaGroup | None], url: str | None, group: str | None) -> Self:
        """Return the encodings of a stream's events, without asking the registry.

        Args:
            stream: the stream.
            noted: what the archive's generations have noted, oldest first.
            url: the registry; None to ask none.
            group: the group's name there; None for that of what was noted, or the stream's name.

        Raises:
            Conflict: generations have noted different schemas.
            Usage: the URL is not valid.
        """
        try:
            held = SchemaGroup.union(noted)
        except ValueError as error:
            what = "generations of the archive have recorded different schemas"
            todo = "Read the generations before and after it separately; a table needs --decode none, or the stream."
            raise Conflict(what, where=str(error), todo=todo) from None
        name = group or (held.group if held else stream.stream)
        return cls(name, held, None if url is None else RegistryGroup(url, name))

    def read(self) -> SchemaGroup:
        """Return all encodings: those that were noted, and those that the registry has now.

        Raises:
            Usage: neither the archive nor a registry has any.
            Conflict: the archive has noted another group, or as `RegistryGroup.noted`.
            RegistryFailed: as `RegistryGroup.noted`.
        """
        if self.registry is not None:
            try:
                return self.registry.noted(self.noted)
            except RegistryFailed as error:
                if self.noted is None:
                    raise
                todo = f"{error.todo} Without its URL, what the archive has recorded is used.".lstrip()
                raise type(error)(error.what, where=error.where, todo=todo) from None
        if self.noted is None:
            todo = "Give the registry's URL, or record the schemas in the archive (export --schemas URL)."
            raise Usage("nothing says how the events are encoded", where=self.group, todo=todo)
        if self.noted.group != self.group:
            todo = "Omit the group, or give the URL of the registry that has it."
            raise Conflict(f"the archive has recorded the schemas of {self.noted.group}", where=self.group, todo=todo)
        return self.noted


def _version(answer: Any) -> SchemaVersion:
    info = answer["schemaInfo"]
    kind = info["serializationFormat"]["serializationFormat"]
    return SchemaVersion(
        type=info["type"],
        format=kind if kind in FORMATS else answer["versionInfo"]["serializationFormat"],
        version=answer["versionInfo"]["version"],
        data=info["schemaData"],
    )


def _entry(number: int, answer: Any) -> SchemaEntry:
    return SchemaEntry(encoding=number, codec=answer["codecType"]["name"], **_version(answer).model_dump())
