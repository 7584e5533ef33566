"""The JSON schema of each report that ``--json`` prints, and the page that lists the reports' fields.

Both are made from the report classes and their docstrings.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter

from streamvault.common.report import Report, attribute_names
from streamvault.concat.reports import CopyReport, StitchReport
from streamvault.demo.report import DemoReport
from streamvault.exporter.reports import (
    CompactReport,
    ConvertReport,
    ExportReport,
    FollowReport,
    PlanReport,
    RotateReport,
)
from streamvault.importer.reports import ImportReport
from streamvault.inspect.reports import PageReport, SetupReport, StatusReport
from streamvault.lake.reports import HandoffReport
from streamvault.manager.reports import StreamListing, SweepReport
from streamvault.manifests.verbs.reports import (
    ArchiveList,
    CheckReport,
    DeleteReport,
    HoldReport,
    Timeline,
    WarmReport,
)
from streamvault.replication.reports import MoveReport, PromoteReport, ReplicateReport, TranslateReport
from streamvault.requests.reports import FinishedRequest, QueueReport, RequestReport, WorkReport
from streamvault.scopes.reports import ScopeReport
from streamvault.serving.reports import ServeReport

FOLDER = Path(__file__).parents[2] / "docs" / "reference"

REPORTS: Mapping[str, type[Report]] = {
    "export": ExportReport,
    "import": ImportReport,
    "copy": CopyReport,
    "append": StitchReport,
    "join": StitchReport,
    "replicate": ReplicateReport,
    "promote": PromoteReport,
    "move": MoveReport,
    "translate": TranslateReport,
    "streams": StreamListing,
    "sweep": SweepReport,
    "ls": ArchiveList,
    "timeline": Timeline,
    "doctor": SetupReport,
    "status": StatusReport,
    "report": PageReport,
    "check": CheckReport,
    "plan": PlanReport,
    "convert": ConvertReport,
    "handoff": HandoffReport,
    "compact": CompactReport,
    "rotate": RotateReport,
    "follow": FollowReport,
    "serve": ServeReport,
    "hold": HoldReport,
    "release": HoldReport,
    "delete": DeleteReport,
    "request-restore": RequestReport,
    "work": WorkReport,
    "work-request": FinishedRequest,
    "queue": QueueReport,
    "warm": WarmReport,
    "demo": DemoReport,
    "scope": ScopeReport,
}
"""What a command prints with ``--json``. `work` also prints a ``work-request`` for each finished request;
a command for the streams of a scope prints a ``scope``."""

PAGE = """# Reports

What a command prints with `--json`, one JSON object, and what the verb's function returns in Python. Each report has a
JSON schema in `reports/`. A field has the same type and unit in all reports: sizes are in bytes, durations in seconds,
times in RFC 3339.

A command for the streams of a scope prints a `scope`, which has the command's report for each stream. `work` prints a
`work-request` for each finished request, then its own report. `show --json` prints the
[manifest](format.md). A command that fails prints `{"error": {…}}` with `what`, `where`, `todo`, `exit_code` and
`retriable`. This page and the schemas are generated from the sources.
"""


def schema_of(report: type[Report]) -> dict[str, Any]:
    """Return the JSON schema of a report."""
    generated = json.dumps(TypeAdapter(report).json_schema(mode="serialization"))
    schema = json.loads(generated.replace("__R_", ""))  # the type variable of a generic class
    for name, kind in nested_classes(report).items():
        described = schema if kind is report else schema["$defs"][name]
        texts = _texts(kind)
        described["description"] = _summary(kind)
        described["required"] = attribute_names(kind)
        described["properties"] = {
            name: {**_plain(described["properties"][name]), "description": texts[name]}
            for name in described["required"]
        }
        described["additionalProperties"] = False
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def files() -> dict[Path, str]:
    """Return the content of each generated file."""
    schemas = {name: schema_of(report) for name, report in REPORTS.items()}
    found = {FOLDER / "reports.md": _page(schemas)}
    for name, schema in schemas.items():
        found[FOLDER / "reports" / f"{name}.json"] = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    return found


def nested_classes(kind: type[Any]) -> dict[str, type[Any]]:
    """Return a report's class and those of its fields, by name."""
    found = {kind.__name__: kind}
    for hint in get_type_hints(kind).values():
        for each in _dataclasses_in(hint):
            found |= nested_classes(each)
    return found


def _dataclasses_in(hint: Any) -> Iterator[type[Any]]:
    kind = get_origin(hint) or hint
    if isinstance(kind, type) and is_dataclass(kind):
        yield kind
    for argument in get_args(hint):
        yield from _dataclasses_in(argument)


def _summary(kind: type[Any]) -> str:
    return _one_line((inspect.getdoc(kind) or "").partition("\n\n")[0])


def _texts(kind: type[Any]) -> dict[str, str]:
    """Return what a class and its bases say about each attribute; "as in" and "see" another class are resolved."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        attributes = inspect.cleandoc(each.__dict__.get("__doc__") or "").partition("\nAttributes:\n")[2]
        for name, text in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", attributes, re.MULTILINE):
            found[name] = _resolved(name, _one_line(text))
    return found


def _resolved(name: str, text: str) -> str:
    of = re.match(r"(?:see|as in) `(\w+)`", text)
    other = next((report for report in REPORTS.values() if of and report.__name__ == of[1]), None)
    return text if of is None or other is None else _texts(other)[name].removesuffix(".") + text[of.end() :]


def _one_line(text: str) -> str:
    return re.sub(r"\bNone\b", "null", " ".join(text.split()).replace("``", "`"))


def _plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in {"title", "default"}}


def _page(schemas: Mapping[str, Mapping[str, Any]]) -> str:
    parts = [PAGE]
    nested: dict[str, Any] = {}
    for name, schema in schemas.items():
        parts.append(_section(name, f"{schema['description']} ([schema](reports/{name}.json))", schema))
        nested |= schema.get("$defs", {})
    parts += [_section(name, each["description"], each) for name, each in sorted(nested.items())]
    return "\n".join(parts)


def _section(title: str, text: str, schema: Mapping[str, Any]) -> str:
    rows = [
        f"| `{name}` | {_type(about)} | {about['description']} |".replace("\\", "\\\\")
        for name, about in schema["properties"].items()
    ]
    return "\n".join([f"## {title}", "", text, "", "| field | type | meaning |", "|---|---|---|", *rows, ""])


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"array of {_type(schema['items'])}"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        return f"object of {_type(values)}" if isinstance(values, Mapping) and values else "object"
    return str(schema.get("type", "any"))
