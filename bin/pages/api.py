"""The page of the public functions, and the stub that type checkers read: both from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import streamvault
from bin.pages.reports import FOLDER, REPORTS, nested_classes
from streamvault import errors
from streamvault.manager.manager import NOT_METHODS, StreamManager
from streamvault.manifests.manifest import Manifest
from streamvault.spark import register

STUB = Path(streamvault.__file__).with_suffix(".pyi")

STUB_HEAD = "# What type checkers read of the public functions. `python -m bin.pages` writes it."

PAGE = """# Python API

{summary}

```python
{example}
```

`from streamvault import …` has all of these. Options are keyword arguments, with the names and meanings of the
[command line's](commands.md), but `from_cut`, `to_cut`, `ranges`, `lasting` (`--for`), `subset` (`--read-data-subset`)
and `fingerprints`. A size, a time or a share is a number, or a text as on the command line (`"64MiB"`, `"90d"`,
`"10%"`); a folder or a file may be a `pathlib.Path`. A function returns its report when it is done; the fields of all
reports are in [Reports](reports.md), and a notebook shows one as a table. This page is generated from the sources.
"""

_SECTIONS = re.compile(r"^(Args|Returns|Yields|Raises|Attributes):\n", re.MULTILINE)
_ITEM = re.compile(r"^    ([\w, ]+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_GROUP = re.compile(r"^(\w+): +((?:\w+,\s+)*\w+)$", re.MULTILINE)
_MODULES = re.compile(r"\b(?:[a-z_]+\.)+(?=\w)")
_QUALIFIED = re.compile(r"\b((?:[a-z_]+\.)*[a-z_]+)\.(\w+)")
_OPTIONAL = re.compile(r"^Optional\[(.*)\]$")
_WIDTH = 100


def page() -> str:
    """Return the page."""
    summary, _, rest = (streamvault.__doc__ or "").partition("\n\n")
    example, _, groups = rest.partition("\n\nArchive: ")
    parts = [PAGE.format(summary=summary, example=inspect.cleandoc(example))]
    for title, names in _GROUP.findall(f"Archive: {groups}"):
        parts.append(f"## {title}\n")
        parts += [_function(name, getattr(streamvault, name)) for name in re.split(r",\s+", names)]
    parts += ["## Spark\n", _function("register", register, "from streamvault.spark import register")]
    return "\n".join([*parts, *_errors()])


def _function(name: str, function: Any, imported: str = "") -> str:
    text = inspect.getdoc(function) or ""
    before, *rest = _SECTIONS.split(text)
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    signature = f"{imported}\n\n{_signature(name, function)}" if imported else _signature(name, function)
    lines = [f"### {name}", "", _text(before), "", "```python", signature, "```", ""]
    if items := _ITEM.findall(sections.get("Args", "")):
        lines += ["| argument | meaning |", "|---|---|", *(f"| `{one}` | {_cell(said)} |" for one, said in items), ""]
    if scoped := getattr(getattr(function, "options_class", None), "scoped", None):
        arguments = " and ".join(f"`{one}`" for one in scoped)
        scope = "[scope](../guide/scopes.md) or a pattern"
        lines += [f"{arguments} may also name a {scope}; the result is then a [`ScopeReport`](reports.md#scope).", ""]
    returns = " ".join(filter(None, (_report(function), _text(sections.get("Returns", sections.get("Yields", ""))))))
    if returns:
        lines += [f"Returns: {returns}", ""]
    if items := _ITEM.findall(sections.get("Raises", "")):
        lines += ["Raises:", "", *(f"- `{one.replace(', ', '`, `')}`: {_cell(said)}" for one, said in items), ""]
    return "\n".join(lines)


def _signature(name: str, function: Any) -> str:
    called = inspect.signature(function)
    result = "" if inspect.isclass(function) else f" -> {_type(called.return_annotation)}"
    given, has_keywords = list[str](), False
    for one in called.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not has_keywords:
            given.append("*")
            has_keywords = True
        default = "" if one.default is one.empty else f" = {'…' if callable(one.default) else repr(one.default)}"
        given.append(f"{one.name}: {_type(one.annotation)}{default}")
    line = f"{name}({', '.join(given)}){result}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {one}," for one in given), f"){result}"])


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _OPTIONAL.sub(r"\1 | None", _MODULES.sub("", text))


def _report(function: Any) -> str:
    """Return a link to what a function returns, if it is described elsewhere."""
    returned = inspect.signature(function).return_annotation
    if "Manifest" in {returned, getattr(returned, "__name__", "")}:
        return f"[`{Manifest.__name__}`](format.md)"
    anchors = {each: each.lower() for report in REPORTS.values() for each in nested_classes(report)}
    anchors |= {report.__name__: name for name, report in reversed(list(REPORTS.items()))}
    found = [each for each in re.findall(r"\w+", _type(returned)) if each in anchors]
    return f"[`{_type(returned)}`](reports.md#{anchors[found[0]]})" if found else ""


def stub() -> str:
    """Return the stub: each verb with its options, which type checkers cannot see; the rest is imported."""
    imported: dict[str, set[str]] = {"typing": {"Literal"}}
    lines = []

    def written(annotation: Any) -> str:
        text = _OPTIONAL.sub(r"\1 | None", inspect.formatannotation(annotation))
        for module, name in _QUALIFIED.findall(text):
            imported.setdefault(module, set()).add(name)
        return _MODULES.sub("", text)

    names = [name for name in dir(streamvault) if not name.startswith("_")]
    manager = StreamManager.__name__
    methods = [f"    {name} = staticmethod(streamvault.{name})\n" for name in names if name not in NOT_METHODS]
    lines.append(f"class {manager}(manager.{manager}):\n{''.join(methods)}")
    for name in names:
        function = getattr(streamvault, name)
        if name == manager:
            continue
        if not hasattr(function, "options_class"):
            imported.setdefault(function.__module__, set()).add(f"{name} as {name}")
            continue
        called = inspect.signature(function)
        given, has_keywords = list[str](), False
        for one in called.parameters.values():
            if one.kind is one.KEYWORD_ONLY and not has_keywords:
                given.append("*")
                has_keywords = True
            given.append(f"{one.name}: {written(one.annotation)}{'' if one.default is one.empty else ' = ...'}")
        arguments = "".join(f"    {each},\n" for each in given)
        lines.append(f"def {name}(\n{arguments}) -> {written(called.return_annotation)}: ...\n")
    imports = [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(imported.items())]
    imports = ["import streamvault", "from streamvault.manager import manager", *imports]
    return "\n".join([STUB_HEAD, *imports, "", "__version__: str", "", *lines])


def _errors() -> Iterator[str]:
    yield f"## Errors\n\n{_text(errors.__doc__ or '')}\n"
    yield "| `streamvault.errors.…` | exit code | meaning |\n|---|---|---|"
    for name in errors.__all__:
        kind = getattr(errors, name)
        said = (inspect.getdoc(kind) or "").partition("\n\n")[0]
        yield f"| `{name}` | {kind.exit_code} | {_cell(said)} |"
    yield ""


def _cell(text: str) -> str:
    return " ".join(_text(text).split()).replace("|", "\\|")


def _text(text: str) -> str:
    """Return the text of a docstring as Markdown, with links to the functions that it names."""
    plain = text.strip().replace("``", "`")
    return re.sub(
        r"`(\w+)`", lambda one: f"[{one[0]}](#{one[1].lower()})" if one[1] in dir(streamvault) else one[0], plain
    )


def files() -> dict[Path, str]:
    """Return the content of each generated file."""
    return {FOLDER / "api.md": page(), STUB: stub()}
