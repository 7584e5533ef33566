"""Random histories of schemas, a random one for each seed: of Avro, Protobuf and JSON Schema, compatible or not."""

from __future__ import annotations

import base64
import copy
import json
import random
from itertools import count
from typing import Any

from google.protobuf import descriptor_pb2

FIELD = descriptor_pb2.FieldDescriptorProto
PLAIN = ["boolean", "int", "long", "float", "double", "bytes", "string"]
LOGICAL = {
    "int": ["date", "time-millis"],
    "long": ["timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros"],
    "string": ["uuid"],
}
WIDER = {
    FIELD.TYPE_INT32: FIELD.TYPE_INT64,
    FIELD.TYPE_SINT32: FIELD.TYPE_SINT64,
    FIELD.TYPE_UINT32: FIELD.TYPE_UINT64,
    FIELD.TYPE_STRING: FIELD.TYPE_BYTES,
}
SCALARS = [
    kind
    for kind in FIELD.Type.values()
    if kind not in {FIELD.TYPE_GROUP, FIELD.TYPE_MESSAGE, FIELD.TYPE_ENUM}
]  # fmt: skip


class _Avro:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._numbers = count()
        self._scale = self._one_of(0, 2, 7)  # a table has values of the writer's scale, as Java's library has not

    def history(self, fields: int) -> list[dict[str, Any]]:
        begun = self._fields(fields or self._one_of(1, 2, 4), 0)
        schema: dict[str, Any] = {"type": "record", "name": "Event", "namespace": "n", "fields": begun}
        found = [_once(schema, set())]
        for _ in range(self._random.randrange(1, 5)):
            schema = copy.deepcopy(schema)
            for _ in range(max(1, fields // 4)):
                self._change(schema)
            found.append(_once(schema, set()))
        return found

    def _one_of(self, *some: Any) -> Any:
        return self._random.choice(some)

    def _fields(self, number: int, depth: int) -> list[dict[str, Any]]:
        return [{"name": self._name("f"), "type": self._type(depth)} for _ in range(number)]

    def _name(self, kind: str) -> str:
        return f"{kind}{next(self._numbers)}"

    def _type(self, depth: int, *, in_union: bool = False) -> Any:  # noqa: PLR0911  (one for each kind of type)
        some = ["plain", "plain", "logical", "decimal", "enum", "fixed"]
        some += [] if depth > 2 else ["array", "map", "record"]
        some += [] if in_union else ["optional", "union"]
        kind = self._one_of(*some)
        if kind == "plain":
            return self._one_of(*PLAIN)
        if kind == "logical":
            plain = self._one_of(*LOGICAL)
            return {"type": plain, "logicalType": self._one_of(*LOGICAL[plain])}
        if kind == "decimal":
            of = self._one_of({"type": "bytes"}, {"type": "fixed", "name": self._name("D"), "size": 4})
            return {**of, "logicalType": "decimal", "precision": 7, "scale": self._scale}
        if kind == "enum":
            return {"type": "enum", "name": self._name("E"), "symbols": ["A", "B", "C"][: self._one_of(1, 2, 3)]}
        if kind == "fixed":
            return {"type": "fixed", "name": self._name("X"), "size": self._one_of(1, 4)}
        if kind == "record":
            return {"type": "record", "name": self._name("R"), "fields": self._fields(self._one_of(1, 2), depth + 1)}
        if kind == "optional":
            inner = self._type(depth, in_union=True)
            return self._one_of(["null", inner], [inner, "null"])
        if kind == "union":
            types: dict[str, Any] = {}
            for _ in range(self._one_of(2, 3)):
                one = self._type(depth + 1, in_union=True)
                types.setdefault(_key(one), one)
            return [*types.values(), *self._one_of([], ["null"])]
        return {"type": kind, {"array": "items", "map": "values"}[kind]: self._type(depth + 1)}

    def _default(self, kind: Any) -> Any:
        if isinstance(kind, list):
            return self._default(kind[0])
        name = kind["type"] if isinstance(kind, dict) else kind
        if name == "record":
            return {field["name"]: self._default(field["type"]) for field in kind["fields"]}
        if name in {"array", "map"}:
            inner = self._default(kind["items" if name == "array" else "values"])
            return self._one_of([], [inner]) if name == "array" else self._one_of({}, {"k": inner})
        if name == "enum":
            return kind["symbols"][0]
        if name == "fixed":
            return "\u00ff" * kind["size"]
        plain = {"null": None, "boolean": True, "int": 7, "long": 2**40, "float": 0.1, "double": 3, "string": "-"}
        return plain.get(name, "\u0001\u00ff")

    def _change(self, schema: dict[str, Any]) -> None:  # noqa: C901  (one for each change)
        """Change one place of a schema, of the records and types in it."""
        places = list(_places(schema))
        record = self._random.choice([one for one in places if one["type"] == "record"])
        fields = record["fields"]
        field = self._random.choice(fields)
        change = self._one_of("add", "remove", "order", "rename", "type", "type", "type", "name", "enum", "fixed")
        if change == "add":
            new = self._fields(1, 1)[0]
            if self._random.random() < 0.8:
                new["default"] = self._default(new["type"])
            fields.insert(self._random.randrange(len(fields) + 1), new)
        elif change == "remove" and len(fields) > 1:
            fields.remove(field)
        elif change == "order":
            self._random.shuffle(fields)
        elif change == "rename":
            field["aliases"] = [*field.get("aliases", []), field["name"]]
            field["name"] = self._name("f")
        elif change == "type":
            field["type"] = self._other(field["type"])
        elif change in {"name", "enum", "fixed"}:
            self._change_named(self._random.choice([one for one in places if "name" in one]), change)
        for one in _places(schema):
            for field in one.get("fields", []):
                if "default" in field:  # of what it may be no longer
                    field["default"] = self._default(field["type"])

    def _change_named(self, named: dict[str, Any], change: str) -> None:
        if change == "name":
            if self._random.random() < 0.7:
                named["aliases"] = [*named.get("aliases", []), named["name"]]
            named["name"] = self._name("N")
        elif named["type"] == "enum":
            few = self._random.sample(["A", "B", "C", "D"], self._one_of(1, 2, 3))
            named["symbols"] = few
            named.pop("default", None)
            if self._random.random() < 0.5:
                named["default"] = few[-1]
        elif named["type"] == "fixed" and "logicalType" not in named:
            named["size"] = self._one_of(1, 2, 4)

    def _other(self, kind: Any) -> Any:  # noqa: C901, PLR0911  (one for each change)
        if self._random.random() < 0.1:
            return self._type(1)
        if isinstance(kind, list):
            how = self._one_of("more", "fewer", "order", "inner", "only")
            if how == "more":
                one = self._type(1, in_union=True)
                return kind if _key(one) in map(_key, kind) else [*kind, one]
            if how == "fewer" and len(kind) > 1:
                fewer = self._random.sample(kind, len(kind) - 1)
                return kind if fewer == ["null"] else fewer
            if how == "order":
                return self._random.sample(kind, len(kind))
            at = self._random.randrange(len(kind))
            if how == "only" and kind[at] != "null":
                return kind[at]
            one = kind[at] if kind[at] == "null" else self._other(kind[at])
            others = [*kind[:at], *kind[at + 1 :]]
            is_wrong = isinstance(one, list) or _key(one) in map(_key, others)
            return kind if is_wrong else [*kind[:at], one, *kind[at + 1 :]]
        if self._random.random() < 0.2:
            return ["null", kind]
        plain = kind["type"] if isinstance(kind, dict) else kind
        if plain in {"array", "map"}:
            inner = "items" if plain == "array" else "values"
            return {**kind, inner: self._other(kind[inner])}
        if isinstance(kind, dict) and "logicalType" in kind:
            precise = {**kind, "precision": 9} if kind["logicalType"] == "decimal" else kind
            bare = {"was" if name == "logicalType" else name: one for name, one in kind.items()}
            return self._one_of(precise, bare)
        if isinstance(kind, dict) and "was" in kind:
            return {"logicalType" if name == "was" else name: one for name, one in kind.items()}
        wider = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"]}
        wider |= {"string": ["bytes"], "bytes": ["string"]}
        found = self._one_of(*wider.get(plain, [plain]))
        if found == plain and plain in LOGICAL:
            return {"type": plain, "logicalType": self._one_of(*LOGICAL[plain])}
        return found if found != plain else kind


def _key(kind: Any) -> str:
    """What a union has only one of."""
    return kind if isinstance(kind, str) else kind.get("name", kind["type"])


def _places(kind: Any) -> Any:
    for one in kind if isinstance(kind, list) else [kind]:
        if isinstance(one, dict):
            yield one
            inner = [field["type"] for field in one.get("fields", ())]
            for some in (*inner, one.get("items", "null"), one.get("values", "null")):
                yield from _places(some)


def _once(kind: Any, known: set[str]) -> Any:
    """A schema in which each named type is written out once, as it has to be."""
    if isinstance(kind, list):
        return [_once(one, known) for one in kind]
    if not isinstance(kind, dict):
        return kind
    if kind.get("name") in known:
        return kind["name"]
    known |= {kind["name"]} if "name" in kind else set()
    fields = [{**field, "type": _once(field["type"], known)} for field in kind.get("fields", ())]
    inner = {name: _once(kind[name], known) for name in ("items", "values") if name in kind}
    return {**kind, **inner, **({"fields": fields} if "fields" in kind else {})}


def _without_defaults(kind: Any) -> Any:
    if isinstance(kind, list):
        return [_without_defaults(one) for one in kind]
    if not isinstance(kind, dict):
        return kind
    inner = {"type", "items", "values", "fields"}
    kept = {name: one for name, one in kind.items() if name != "default"}
    return {name: _without_defaults(one) if name in inner else one for name, one in kept.items()}


def protobuf_history(seed: int) -> list[bytes]:
    """Descriptor sets of a message ``Event``: fields come, go, and have other names, numbers and types."""
    some, numbers = random.Random(seed), count(1)

    def field(depth: int) -> dict[str, Any]:
        number = next(numbers)
        kind = some.choice([*SCALARS, FIELD.TYPE_ENUM, FIELD.TYPE_ENUM, *([FIELD.TYPE_MESSAGE] * 3 * (depth < 2))])
        inner = [field(depth + 1) for _ in range(some.randrange(1, 4))] if kind == FIELD.TYPE_MESSAGE else []
        how = some.choice(["", "", "repeated", "optional", "oneof", "map"])
        about = {"name": f"f{number}", "number": number, "kind": kind, "symbols": some.randrange(1, 4)}
        return {**about, "fields": inner, "how": how}

    fields = [field(0) for _ in range(some.randrange(1, 5))]
    found = [_descriptors(fields)]
    for _ in range(some.randrange(1, 5)):
        fields = copy.deepcopy(fields)
        inside = some.choice([one["fields"] for one in fields if one["fields"]] or [fields])
        place = some.choice([fields, inside])
        one, change = some.choice(place), some.choice(["add", "remove", "order", "rename", "kind", "how", "symbols"])
        if change == "add":
            place.append(field(1))
        elif change == "remove" and len(place) > 1:
            place.remove(one)
        elif change == "order":
            some.shuffle(place)
        elif change == "rename":
            one["name"] = f"f{next(numbers)}"
        elif change == "kind":  # of types that are read as others of the wire, a table has the writer's values
            one["kind"] = WIDER.get(one["kind"], one["kind"])
        elif change == "how" and one["how"] not in {"repeated", "map"}:
            one["how"] = some.choice(["", "repeated", "optional", "oneof"])
        elif change == "symbols":
            one["symbols"] = some.randrange(1, 4)
        found.append(_descriptors(fields))
    return found


def _descriptors(fields: list[dict[str, Any]]) -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="event.proto", syntax="proto3")
    _fill(file.message_type.add(name="Event"), fields, ".Event")
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def _fill(  # noqa: C901  (one for each kind of field)
    message: descriptor_pb2.DescriptorProto, fields: list[dict[str, Any]], path: str
) -> None:
    for one in fields:
        made = message.field.add(name=one["name"], number=one["number"], type=one["kind"], label=1)
        if one["kind"] == FIELD.TYPE_MESSAGE:
            made.type_name = f"{path}.M{one['number']}"
            _fill(message.nested_type.add(name=f"M{one['number']}"), one["fields"], made.type_name)
        elif one["kind"] == FIELD.TYPE_ENUM:
            made.type_name = f"{path}.E{one['number']}"
            kind = message.enum_type.add(name=f"E{one['number']}")
            for number in range(one["symbols"]):
                kind.value.add(name=f"S{one['number']}_{number}", number=number)
        if one["how"] == "map":
            entry = message.nested_type.add(name=f"F{one['name'][1:]}Entry")
            entry.options.map_entry = True
            key = (FIELD.TYPE_STRING, FIELD.TYPE_INT64, FIELD.TYPE_BOOL)[one["number"] % 3]
            entry.field.add(name="key", number=1, type=key, label=1)
            entry.field.add(name="value", number=2, type=made.type, label=1, type_name=made.type_name or None)
            made.type, made.type_name, made.label = FIELD.TYPE_MESSAGE, f"{path}.{entry.name}", 3
        elif one["how"] == "repeated":
            made.label = 3
        elif one["how"] == "oneof":
            if not any(each.name == "either" for each in message.oneof_decl):
                message.oneof_decl.add(name="either")
            made.oneof_index = 0
    # those of proto3's optional come last
    for made, one in zip(message.field, fields, strict=True):
        if one["how"] == "optional":
            made.proto3_optional, made.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{one['name']}")


def json_history(seed: int) -> tuple[list[bytes], list[str]]:
    """JSON Schemas of objects that get new properties, and texts of events of any of them."""
    some, numbers = random.Random(seed), count()

    def kind(depth: int) -> dict[str, Any]:
        name = some.choice(["integer", "number", "string", "boolean", *(["array", "object"] * (depth < 2))])
        if name == "array":
            return {"type": name, "items": kind(depth + 1)}
        return {"type": name, "properties": properties(depth + 1)} if name == "object" else {"type": name}

    def properties(depth: int) -> dict[str, Any]:
        return {f"f{next(numbers)}": kind(depth) for _ in range(some.randrange(1, 4))}

    def value(schema: dict[str, Any]) -> Any:
        if some.random() < 0.04:
            return some.choice([None, "text", 1, 0.5, [], {}, True])
        name = schema["type"]
        if name == "array":
            return [value(schema["items"]) for _ in range(some.randrange(3))]
        if name == "object":
            return {each: value(inner) for each, inner in schema["properties"].items() if some.random() < 0.9}
        whole = some.choice([0, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), some.randrange(10**6)])
        any_real = some.random() * 10 ** some.randrange(-300, 300)
        real = some.choice([0.5, -0.0, 1e300, 5e-324, 0.1, 1e22, 123456789.125, whole, any_real])
        text = some.choice(["", "Zürich", "\0", "\U0001f600", '"\\', "1"])
        return {"integer": whole, "number": real, "string": text, "boolean": True}[name]

    schemas = [{"type": "object", "properties": properties(0)}]
    for _ in range(some.randrange(1, 4)):
        schemas.append({"type": "object", "properties": {**schemas[-1]["properties"], **properties(0)}})
    texts = [json.dumps(value(some.choice(schemas))) for _ in range(4)]
    return [json.dumps(schema).encode() for schema in schemas], [text for text in texts if text[0] == "{"]


def request(kind: str, seed: int, fields: int = 0) -> tuple[list[bytes], dict[str, Any]]:
    """A history's schemas, and what the Java program is asked of it; `fields` is their number in Avro, 0 for any."""
    asked: dict[str, Any] = {"kind": kind, "seed": seed, "events": fields or 4}
    if kind == "avro":
        schemas = _Avro(seed).history(fields)
        # Java's library checks those of the writer's, after it has renamed by aliases what they are of
        written = [_without_defaults(one) for one in schemas]
        return [json.dumps(one).encode() for one in schemas], {**asked, "schemas": schemas, "written": written}
    if kind == "protobuf":
        sets = protobuf_history(seed)
        return sets, {**asked, "schemas": [base64.b64encode(one).decode() for one in sets]}
    made, texts = json_history(seed)
    return made, {**asked, "texts": texts, "schemas": [one.decode() for one in made]}
