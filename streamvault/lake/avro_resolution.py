"""Avro's schema resolution, by the rules of its Java library: values of a writer's schema as those of a reader's.

Schemas are expanded: only recursive types are still named. A value of a union of several types is ``{BRANCH: value}``.
Units and scales are the writer's: a schema that is returned has those of the values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from streamvault.lake.payloads import NotDecoded

Convert = Callable[[Any], Any]
"""Converts a value; raises `NotDecoded`, or `ValueError` for a text that is none, if the reader's schema has none."""


class Resolved(NamedTuple):
    """How a value becomes one of the reader's schema.

    Attributes:
        schema: the schema of the result.
        convert: what converts a value; None if it stays as it is.
        is_refused: whether no value can be converted.
    """

    schema: Any
    convert: Convert | None = None
    is_refused: bool = False

    def of(self, value: Any) -> Any:
        """Convert a value."""
        return value if self.convert is None else self.convert(value)


class ResolvedField(NamedTuple):
    """A field of the result; `source` is the writer's field that its values are of, None for the default."""

    source: str | None
    resolved: Resolved


def branches(union: list[Any]) -> list[Any]:
    """Return the types of a union beside null."""
    return [one for one in union if alone(one)["type"] != "null"]


def branch_name(branch: Any) -> str:
    """Return a branch's name: that of its type, or its own without a namespace."""
    name = branch.get("name", branch["type"]) if isinstance(branch, dict) else branch
    return str(name).rpartition(".")[2]


def alone(schema: Any) -> dict[str, Any]:
    """Return a type as a dictionary; of a union, ``{"type": UNION}``."""
    if isinstance(schema, str | list):
        return {"type": schema}
    return alone(schema["type"]) if isinstance(schema["type"], dict | list) else schema


def resolved_fields(written: dict[str, Any], reader: dict[str, Any]) -> dict[str, ResolvedField]:
    """Return the fields of two records: those of the reader, and those that only the writer has."""
    ours = {field["name"]: field["type"] for field in written["fields"]}
    is_same = _is_named(written, reader)
    found: dict[str, ResolvedField] = {}
    for field in reader["fields"]:
        names = (field["name"], *(field.get("aliases", ()) if is_same else ()))
        source = next((one for one in names if one in ours), None)
        resolved = _defaulted(field) if source is None else resolve(ours[source], field["type"])
        found[field["name"]] = ResolvedField(source, resolved)
    own = {name: ResolvedField(name, Resolved(kind)) for name, kind in ours.items() if name not in found}
    return {**found, **own}


def resolve(written: Any, reader: Any) -> Resolved:  # noqa: PLR0911  (one for each kind of type)
    """Return how values of one type become those of another one."""
    writer, other = alone(written), alone(reader)
    if isinstance(writer["type"], list):
        return _of_union(writer["type"], other)
    if isinstance(other["type"], list):
        return _to_branch(writer, other["type"], _matching(writer, other["type"]))
    kind = other["type"]
    if writer["type"] != kind:
        change = _PROMOTIONS.get((writer["type"], kind))
        return Resolved(other, change) if change else _refused(other, f"{writer['type']} does not become {kind}")
    if kind == "record":
        return _of_record(writer, other)
    inner = {"array": "items", "map": "values"}.get(kind)
    if inner is not None:
        found = resolve(writer[inner], other[inner])
        convert = None if found.convert is None else partial(_each, found.convert)
        return Resolved({**other, inner: found.schema}, convert)
    if kind in {"enum", "fixed"} and not _is_named(writer, other):
        return _refused(other, f"{writer['name']} is not {other['name']}")
    if kind == "enum":
        return Resolved(other, partial(_symbol, frozenset(other["symbols"]), other.get("default")))
    if kind == "fixed" and writer["size"] != other["size"]:
        return _refused(other, f"{writer['name']} has another size")
    logical = [str(one.get("logicalType")).removeprefix("local-").partition("-")[0] for one in (writer, other)]
    if logical == ["timestamp"] * 2:
        return Resolved({**other, "logicalType": writer["logicalType"]})
    is_scaled = logical == ["decimal"] * 2 and writer.get("scale", 0) != other.get("scale", 0)
    return Resolved(writer if is_scaled else other)


def _of_record(written: dict[str, Any], reader: dict[str, Any]) -> Resolved:
    fields = resolved_fields(written, reader)
    schema = {**reader, "fields": [{"name": name, "type": one.resolved.schema} for name, one in fields.items()]}
    missing = next((one.resolved for one in fields.values() if one.source is None and one.resolved.is_refused), None)
    if missing is not None:
        return Resolved(schema, missing.convert, is_refused=True)
    is_same = all(name == one.source and one.resolved.convert is None for name, one in fields.items())
    return Resolved(schema, None if is_same else partial(_record, fields))


def _record(fields: dict[str, ResolvedField], value: dict[str, Any]) -> dict[str, Any]:
    return {name: resolved.of(None if source is None else value[source]) for name, (source, resolved) in fields.items()}


def _defaulted(field: dict[str, Any]) -> Resolved:
    if "default" not in field:
        return _refused(field["type"], f"the event has no {field['name']}, which has no default")
    try:
        value = _default(field["type"], field["default"])
    except (AttributeError, TypeError, ValueError, LookupError):
        return _refused(field["type"], f"the event has no {field['name']}, whose default is not of its type")
    return Resolved(field["type"], lambda _: value)


def _default(schema: Any, value: Any) -> Any:
    """Return a field's default, which is JSON, as the library reads a value."""
    if value is None:
        return None
    if isinstance(schema, list):  # of which the default is of the first type
        inner = _default(schema[0], value)
        return {branch_name(schema[0]): inner} if len(branches(schema)) > 1 else inner
    plain = alone(schema)
    if plain["type"] in {"bytes", "fixed"}:
        return value.encode("latin-1")
    if plain["type"] == "record":
        return {
            one["name"]: _default(one["type"], value.get(one["name"], one.get("default"))) for one in plain["fields"]
        }
    if plain["type"] == "array":
        return [_default(plain["items"], one) for one in value]
    return {key: _default(plain["values"], one) for key, one in value.items()} if plain["type"] == "map" else value


def _of_union(written: list[Any], reader: dict[str, Any]) -> Resolved:
    """Return how values of a union become those of another type, each branch by itself."""
    is_first, is_same = True, isinstance(reader["type"], list) and _is_equivalent(written, reader["type"])
    each = [
        _to_branch(alone(one), reader["type"], at) if is_same else resolve(one, reader)
        for at, one in enumerate(written)
    ]
    schema = reader["type"] if isinstance(reader["type"], list) else reader
    made: dict[str, Resolved] = {}
    for one, found in zip(written, each, strict=True):
        name = "" if alone(one)["type"] == "null" else branch_name(one)
        merged = schema if found.is_refused else found.schema if is_first else _merged(schema, found.schema)
        is_first = is_first and found.is_refused
        made[name] = _refused(schema, f"{name} has another unit or scale") if merged is None else found
        schema = schema if merged is None else merged
    if len(made.keys() - {""}) == 1:
        (name,) = made.keys() - {""}
        return Resolved(schema, lambda value: made["" if value is None else name].of(value))
    return Resolved(schema, lambda value: made[""].of(None) if value is None else _of_branch(made, value))


def _merged(one: Any, other: Any) -> Any:
    """Return a schema with the fields of two results for one reader; None if their units or scales differ."""
    mine, its = alone(one), alone(other)
    if isinstance(mine["type"], list):
        found = [_merged(*pair) for pair in zip(mine["type"], its["type"], strict=True)]
        return None if None in found else found
    if mine["type"] == "record":
        ours, theirs = ({field["name"]: field["type"] for field in some["fields"]} for some in (mine, its))
        types = {name: _merged(kind, theirs[name]) if name in theirs else kind for name, kind in ours.items()}
        fields = [{"name": name, "type": kind} for name, kind in {**theirs, **types}.items()]
        return None if None in types.values() else {**mine, "fields": fields}
    inner = {"array": "items", "map": "values"}.get(mine["type"])
    if inner is not None:
        merged = _merged(mine[inner], its[inner])
        return None if merged is None else {**mine, inner: merged}
    return one if all(mine.get(name) == its.get(name) for name in ("logicalType", "scale")) else None


def _of_branch(made: dict[str, Resolved], value: dict[str, Any]) -> Any:
    ((name, inner),) = value.items()
    return made[name].of(inner)


def _to_branch(written: dict[str, Any], union: list[Any], at: int) -> Resolved:
    """Return how values of a type become those of a branch of a union; of none if its place is negative."""
    if at < 0:
        return _refused(union, f"{branch_name(written)} is not a branch of {', '.join(map(branch_name, union))}")
    if written["type"] == "null":
        return Resolved(union)
    found = resolve(written, union[at])
    schema = [*union[:at], found.schema, *union[at + 1 :]]
    if len(branches(union)) == 1 or found.is_refused:
        return found._replace(schema=schema)
    name = branch_name(union[at])
    return Resolved(schema, lambda value: {name: found.of(value)})


def _matching(written: dict[str, Any], union: list[Any]) -> int:
    """Return the place of the branch that values of a type are of; -1 for none.

    Of records with other names, one that has the name without its namespace goes before others with the same fields,
    as in Java's ``Resolver.ReaderUnion`` (Avro 1.9 and later).
    """
    kind, others = written["type"], [alone(one) for one in union]
    same = [at for at, one in enumerate(others) if one["type"] == kind]
    if kind in {"record", "enum", "fixed"}:
        alike = [at for at in same if kind == "record" and _has_all(written, others[at])]
        short = [at for at in alike if branch_name(others[at]) == branch_name(written)]
        same = [at for at in same if _is_named(written, others[at])] or short[-1:] or alike
    promoted = (at for at, one in enumerate(others) if (kind, one["type"]) in _PROMOTIONS)
    return next(iter(same), next(promoted, -1))


def _has_all(written: dict[str, Any], reader: dict[str, Any]) -> bool:
    return not any(one.resolved.is_refused for one in resolved_fields(written, reader).values())


def _is_equivalent(written: Any, reader: Any) -> bool:
    """Return whether the branches of two unions are the same, one by one."""
    one, other = alone(written), alone(reader)
    if isinstance(one["type"], list) and isinstance(other["type"], list):
        pairs = list(zip(one["type"], other["type"], strict=False))
        return len(one["type"]) == len(other["type"]) and all(_is_equivalent(*pair) for pair in pairs)
    if one["type"] != other["type"] or ("name" in one and not _is_named(one, other)):
        return False
    if one["type"] == "record":
        ours, theirs = ([(field["name"], field["type"]) for field in some["fields"]] for some in (one, other))
        return len(ours) == len(theirs) and all(
            mine[0] == its[0] and _is_equivalent(mine[1], its[1]) for mine, its in zip(ours, theirs, strict=True)
        )
    inner = [name for name in ("items", "values") if name in one]
    same = all(one.get(name) == other.get(name) for name in ("size", "symbols"))
    return same and all(_is_equivalent(one[name], other[name]) for name in inner)


def _is_named(written: dict[str, Any], reader: dict[str, Any]) -> bool:
    """Return whether a named type has the reader's name, or one of its aliases."""
    space = reader["name"].rpartition(".")[0]
    aliases = (one if "." in one or not space else f"{space}.{one}" for one in reader.get("aliases", ()))
    return written["name"] in {reader["name"], *aliases}


def _refused(schema: Any, why: str) -> Resolved:
    def refuse(_: Any) -> Any:
        raise NotDecoded(why)

    return Resolved(schema, refuse, is_refused=True)


def _symbol(known: frozenset[str], default: str | None, value: str) -> str:
    if value not in known and default is None:
        raise NotDecoded(f"{value} is not a symbol of the newest schema")
    return value if value in known else str(default)


def _each(convert: Convert, value: Any) -> Any:
    return {key: convert(one) for key, one in value.items()} if isinstance(value, dict) else [*map(convert, value)]


def _as_float(value: float) -> float:
    return float(np.int64(value).astype(np.float32))  # a conversion by way of a double would round twice


_PROMOTIONS: dict[tuple[str, str], Convert] = {
    ("int", "long"): int,
    ("int", "float"): _as_float,
    ("int", "double"): float,
    ("long", "float"): _as_float,
    ("long", "double"): float,
    ("float", "double"): float,
    ("string", "bytes"): lambda value: value.encode(),
    ("bytes", "string"): lambda value: value.decode(),
}
