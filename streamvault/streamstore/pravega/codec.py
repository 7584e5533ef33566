"""Encodes segment store commands as frames: a command is a class whose annotations define its payload.

A frame is an int32 code, an int32 payload length and the payload, big-endian. Payloads may be longer than defined here
(newer servers append fields), but not shorter.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, TypeVar, dataclass_transform, get_args, get_type_hints
from uuid import UUID

from streamvault.streamstore.errors import WireError

HEADER = struct.Struct(">ii")
"""Code and payload length (bytes), before every payload."""

MAX_PAYLOAD_BYTES = 0x00FFFFFF
"""The longest payload either side sends."""

Int32 = Annotated[int, "i"]
Int64 = Annotated[int, "q"]
Bool = Annotated[bool, "?"]
Text = Annotated[str, "text"]
"""uint16 length and UTF-8; names and tokens are ASCII, a server's stack trace may be anything."""
Id = Annotated[UUID, "id"]
Data = Annotated[bytes, "data"]
"""int32 length and bytes."""


@dataclass(frozen=True)
class WireCommand:
    """Base of all commands; subclasses are frozen dataclasses registered by their code."""

    code: ClassVar[int]


_C = TypeVar("_C", bound=WireCommand)
_COMMANDS: dict[int, type[WireCommand]] = {}
_LAYOUTS: dict[int, tuple[tuple[str, str], ...]] = {}


@dataclass_transform(frozen_default=True, field_specifiers=())
def command(code: int) -> Callable[[type[_C]], type[_C]]:
    """Make a class the command of this code."""

    def register(kind: type[_C]) -> type[_C]:
        made = dataclass(frozen=True)(kind)
        made.code = code
        _COMMANDS[code] = made
        kinds = {name: get_args(hint)[1:] for name, hint in get_type_hints(made, include_extras=True).items()}
        _LAYOUTS[code] = tuple((field.name, kinds[field.name][0]) for field in fields(made))
        return made

    return register


def encode(one: WireCommand) -> bytes:
    """The frame of a command."""
    payload = b"".join([_WRITERS[kind](getattr(one, name)) for name, kind in _LAYOUTS[one.code]])
    return HEADER.pack(one.code, len(payload)) + payload


def decode(code: int, payload: bytes | bytearray | memoryview) -> WireCommand:
    """The command of a frame.

    Raises:
        WireError: the code is unknown, or the payload is too short.
    """
    kind = _COMMANDS.get(code)
    if kind is None:
        raise WireError(f"the segment store sent an unknown command (type {code})")
    values: dict[str, Any] = {}
    position = 0
    try:
        for name, field_kind in _LAYOUTS[code]:
            values[name], position = _READERS[field_kind](payload, position)
    except (struct.error, _ShortError):
        raise WireError(f"the segment store sent a truncated {kind.__name__} ({len(payload)} bytes)") from None
    return kind(**values)


class _ShortError(Exception):
    pass


def _packed(form: str) -> tuple[Callable[[Any], bytes], Callable[[Any, int], tuple[Any, int]]]:
    packer = struct.Struct(f">{form}")
    return packer.pack, lambda payload, at: (packer.unpack_from(payload, at)[0], at + packer.size)


def _take(payload: Any, at: int, length: int) -> bytes:
    if length < 0 or at + length > len(payload):
        raise _ShortError
    return bytes(payload[at : at + length])


def _write_text(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > 0xFFFF:
        raise WireError(f"a text of {len(raw)} bytes is too long for a frame (at most 65,535)")
    return len(raw).to_bytes(2, "big") + raw


def _read_text(payload: Any, at: int) -> tuple[str, int]:
    end = at + 2 + int.from_bytes(_take(payload, at, 2), "big")
    return _take(payload, at + 2, end - at - 2).decode(errors="replace"), end


def _write_data(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _read_data(payload: Any, at: int) -> tuple[bytes, int]:
    end = at + 4 + int.from_bytes(_take(payload, at, 4), "big", signed=True)
    return _take(payload, at + 4, end - at - 4), end


def _read_id(payload: Any, at: int) -> tuple[UUID, int]:
    return UUID(bytes=_take(payload, at, 16)), at + 16


_PACKED = {form: _packed(form) for form in ("i", "q", "?")}
_WRITERS: Mapping[str, Callable[[Any], bytes]] = {
    **{form: pair[0] for form, pair in _PACKED.items()},
    "text": _write_text,
    "data": _write_data,
    "id": lambda value: value.bytes,
}
_READERS: Mapping[str, Callable[[Any, int], tuple[Any, int]]] = {
    **{form: pair[1] for form, pair in _PACKED.items()},
    "text": _read_text,
    "data": _read_data,
    "id": _read_id,
}
