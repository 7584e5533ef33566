"""A client of Pravega's Schema Registry: what the encodings' ids before a group's events stand for."""

from __future__ import annotations

import json
import re
import time
from base64 import b64encode
from contextlib import closing, suppress
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from pydantic import ValidationError

from streamvault.common.at_once import AT_ONCE, each_of
from streamvault.common.errors import Conflict, Failed, Usage
from streamvault.manifests.manifest import MAX_SCHEMAS, SchemaEntry, SchemaGroup

TIMEOUT, DEADLINE = 10.0, 60.0
"""Seconds for each step of a request, and for all of it."""

LARGEST_ANSWER = 4 * 1024 * 1024

GAP = 4 * AT_ONCE
"""So many ids in a row without an encoding are the end: ids are given out in order, and schemas may be deleted."""


class RegistryFailed(Failed):
    """The Schema Registry cannot be reached, or its answer cannot be used."""


def noted_schemas(url: str, group: str, known: SchemaGroup | None = None) -> SchemaGroup:
    """Return all encodings that a group has now, or that are known already.

    Args:
        url: the registry, ``http[s]://[USER:PASSWORD@]HOST[:PORT]``.
        group: ``[NAMESPACE/]GROUP``.
        known: encodings that an archive has noted.

    Raises:
        Conflict: an encoding has another schema than the known one, as of a registry that was set up anew.
        Usage: the URL is not valid, or there is no such group.
        RegistryFailed: the registry cannot be asked, or has too many encodings or too large ones.
    """
    is_valid: object = False
    with suppress(ValueError):
        parts = urlsplit(url)
        is_valid = parts.port != 0 and parts.hostname and not parts.query and not parts.fragment
        is_valid = is_valid and "@" not in parts.path  # what is before it would be a password with a slash
    if not is_valid or parts.scheme not in {"http", "https"}:
        todo = "Use http://HOST:PORT or https://…; in a password, / is %2F."
        raise Usage("not the URL of a Schema Registry", where=_shown(url), todo=todo)
    if _ask(url, group) is None:
        todo = "Name the events' group, [NAMESPACE/]GROUP."
        raise Usage("the registry has no such group", where=f"{_shown(url)} {group}", todo=todo)
    entries, missing = [], 0
    with closing(each_of(lambda number: _ask(url, group, f"/encodings/{number}"), range(2**31 - 1))) as answers:
        for number, answer in enumerate(answers):
            missing = missing + 1 if answer is None else 0
            if missing == GAP:
                break
            if answer is not None:
                entries.append(_entry(url, number, answer))
            if len(entries) > MAX_SCHEMAS:
                what = f"the group has more than {MAX_SCHEMAS:,} encodings"
                raise RegistryFailed(what, where=f"{_shown(url)} {group}")
    try:
        asked = SchemaGroup(group=group, entries=tuple(entries))
    except ValidationError as error:
        raise RegistryFailed("the group cannot be noted", where=error.errors()[0]["msg"]) from None
    try:
        return SchemaGroup.union([known, asked]) or asked
    except ValueError as error:
        todo = "Name the registry and the group that the events were written with."
        raise Conflict("the registry has other schemas than the archive", where=str(error), todo=todo) from None


def _shown(url: str) -> str:
    """Return a URL for messages, without what may be a login, even in a URL that is not valid."""
    return re.sub(r"(?s)^(https?://)?.*@", r"\1", url)


def _entry(url: str, number: int, answer: Any) -> SchemaEntry:
    try:
        info = answer["schemaInfo"]
        return SchemaEntry(
            encoding=number,
            type=info["type"],
            format=info["serializationFormat"]["serializationFormat"],
            version=answer["versionInfo"]["version"],
            data=info["schemaData"],
            codec=answer["codecType"]["name"],
        )
    except (KeyError, TypeError, ValidationError):
        raise _senseless(url) from None


def _senseless(url: str) -> RegistryFailed:
    todo = "See that the URL is of a Pravega Schema Registry."
    return RegistryFailed("an answer of the registry makes no sense", where=_shown(url), todo=todo)


def _ask(url: str, group: str, path: str = "") -> Any:
    """Return the answer to a request for a part of a group; None if it does not exist."""
    from http.client import HTTPException  # noqa: PLC0415  (most commands make no such request)
    from urllib.error import HTTPError  # noqa: PLC0415

    try:
        return json.loads(_read(url, group, path))
    except HTTPError as error:
        if error.code == 404:
            return None
        todo = "Put USER:PASSWORD@ before the host." if error.code in {401, 403} else ""
        raise RegistryFailed(
            f"the registry answers {error.code} {error.reason}", where=_shown(url), todo=todo
        ) from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise RegistryFailed(f"the registry does not answer ({reason})", where=_shown(url)) from None
    except (ValueError, RecursionError, HTTPException):
        raise _senseless(url) from None


def _read(url: str, group: str, path: str) -> bytes:
    from urllib.request import HTTPRedirectHandler, Request, build_opener  # noqa: PLC0415

    class NoRedirects(HTTPRedirectHandler):
        """The login is for this server only."""

        def redirect_request(self, *_: Any) -> None:
            """See the base class."""

    parts = urlsplit(url)
    namespace, _, name = group.rpartition("/")
    where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
    within = f"?namespace={quote(namespace, safe='')}" if namespace else ""
    request = Request(f"{where}/v1/groups/{quote(name, safe='')}{path}{within}")  # noqa: S310  (http or https)
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_header("Authorization", f"Basic {b64encode(login.encode()).decode()}")
    data, until = bytearray(), time.monotonic() + DEADLINE
    with build_opener(NoRedirects).open(request, timeout=TIMEOUT) as answer:
        while len(data) <= LARGEST_ANSWER and time.monotonic() < until:
            block = answer.read1(1 << 16)
            data += block
            if not block:
                return bytes(data)
    raise RegistryFailed("an answer of the registry does not end", where=_shown(url))
