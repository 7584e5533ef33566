"""Routing keys of events: a stream does not store them, so they are found in the payload."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamvault.common.errors import Usage
from streamvault.streamstore.model import EventPointer

_TODO = 'Give a JSON pointer such as "/customer/id", or MODULE:FUNCTION.'

_ANY = (Exception, SystemExit)
"""Whatever a user's code raises; the copy must not end as if it were done."""


class EventKey:
    """Finds the routing key of an event.

    Args:
        text: a JSON pointer (RFC 6901), or ``module:function``, of a module that is installed or in the current folder;
            the function takes the payload (bytes) and returns the key (text).

    Raises:
        Usage: it is neither, or there is no such function.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._find: Callable[[bytes], object] = _pointer(text) if text.startswith("/") else _function(text)

    def of(self, payload: bytes, pointer: Callable[[], EventPointer]) -> str:
        """Return an event's key; the pointer is for messages.

        Raises:
            Usage: there is none; names the event.
        """
        try:
            key = self._find(payload)
            if isinstance(key, int) and not isinstance(key, bool):
                return str(key)
        except _ANY as error:
            what = f"no routing key is found in an event ({_text(error)})"
            raise self._missing(what, pointer()) from None
        if not isinstance(key, str):
            raise self._missing("the routing key of an event is neither text nor an integer", pointer())
        return key

    def _missing(self, what: str, pointer: EventPointer) -> Usage:
        todo = f"Delete the unfinished copy, and give a --key that every event has, instead of {self._text}."
        return Usage(what, where=str(pointer), todo=todo)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _pointer(text: str) -> Callable[[bytes], object]:
    steps = [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]

    def find(payload: bytes) -> object:
        value: Any = json.loads(payload)
        for step in steps:
            value = value[int(step)] if isinstance(value, list) else value[step]
        return value

    return find


def _function(text: str) -> Callable[[bytes], object]:
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise Usage("--key is neither a JSON pointer nor MODULE:FUNCTION", where=repr(text), todo=_TODO)
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # behind what is installed, so that nothing is hidden
    try:
        found = getattr(importlib.import_module(module), name)
    except _ANY as error:
        raise Usage(f"the function of --key is not found ({_text(error)})", where=text, todo=_TODO) from None
    if not callable(found):
        raise Usage("what --key names is not a function", where=text, todo=_TODO)
    find: Callable[[bytes], object] = found
    return find
