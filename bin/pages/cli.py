"""The page about the command line, and man pages: what ``--help`` prints, in other forms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bin.pages.reports import FOLDER
from streamvault.cli.app import COMMANDS, EPILOG, PROGRAM, help_records, load_command
from streamvault.common.version import VERSION

MAN = Path(__file__).parents[2] / "man"
"""The man pages, which the wheel installs."""

SHARED = ("--json", "--log-level", "-h, --help")
"""How the options begin that every command has."""

NOTES = re.sub(r"\w+<\w+>", r"`\g<0>`", EPILOG)
"""Without what Markdown would read as a tag."""

PAGE = f"""# The command line

What `streamvault COMMAND --help` prints, for every command; [commands](commands.md) has addresses, settings
and exit codes. Each command has `--json` (print one JSON object on standard output, a [report](reports.md)),
`--log-level` (write log lines of this level and above to standard error) and `-h`, `--help`.

{NOTES}

The wheel installs the same as [man pages](../guide/install.md#man-pages-and-completion). This page is
generated from the sources.
"""


def commands() -> Iterator[tuple[str, Any]]:
    """Yield each command with its name, as it is typed; of one that has subcommands, these."""
    for name in COMMANDS:
        command = load_command(name)
        for sub, one in getattr(command, "commands", {}).items():
            yield f"{name} {sub}", one
        if not hasattr(command, "commands"):
            yield name, command


def page() -> str:
    """Return the page, as Markdown."""
    return "\n".join([PAGE, *(_section(name, command) for name, command in commands())])


def man_pages() -> dict[str, str]:
    """Return the man pages by file name: one of the program, and one of each command."""
    listed = [(f"{PROGRAM}-{name.replace(' ', '-')}(1)", _paragraphs(command)[0]) for name, command in commands()]
    sections = {"Commands": listed}
    text = "Archive Pravega streams to S3 and restore them."
    found = {f"{PROGRAM}.1": _man(PROGRAM, text, f"{PROGRAM} COMMAND ...", [], sections)}
    for name, command in commands():
        title = f"{PROGRAM}-{name.replace(' ', '-')}"
        first, *rest = _paragraphs(command)
        found[f"{title}.1"] = _man(title, first, _usage(name, command), rest, help_records(command, _context(command)))
    return found


def _section(name: str, command: Any) -> str:
    rows: list[str] = []
    for title, records in help_records(command, _context(command)).items():
        kept = [one for one in records if not one[0].startswith(SHARED)]
        if kept:
            rows += ["", f"| {title.lower().removesuffix('s')} | meaning |", "|---|---|"]
            rows += [f"| `{_cell(form)}` | {_cell(text)} |" for form, text in kept]
    return "\n".join(
        [f"## {name}", "", "```", _usage(name, command), "```", "", "\n\n".join(_paragraphs(command)), *rows, ""]
    )


def _context(command: Any) -> Any:
    return command.make_context(PROGRAM, [], resilient_parsing=True)


def _usage(name: str, command: Any) -> str:
    return " ".join([PROGRAM, name, *command.collect_usage_pieces(_context(command))])


def _paragraphs(command: Any) -> list[str]:
    return [" ".join(text.split()) for text in (command.help or "").split("\n\n")]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _man(title: str, text: str, usage: str, rest: list[str], sections: dict[str, list[tuple[str, str]]]) -> str:
    lines = [f'.TH "{title.upper()}" 1 "" "{PROGRAM} {VERSION}"', ".SH NAME", f"{title} \\- {_roff(text)}"]
    lines += [".SH SYNOPSIS", _roff(usage)]
    if rest:
        lines += [".SH DESCRIPTION", *"\n.PP\n".join(map(_roff, rest)).splitlines()]
    for name, records in sections.items():
        lines.append(f".SH {name.upper()}")
        for form, about in records:
            lines += [".TP", f"\\fB{_roff(form)}\\fR", _roff(about)]
    return "\n".join([*lines, ".SH ENVIRONMENT AND EXIT STATUS", _roff(EPILOG), ""])


def _roff(text: str) -> str:
    """Escape a text for roff, as one line."""
    line = re.sub(r"[^\x20-\x7e]", lambda one: f"\\[u{ord(one[0]):04X}]", " ".join(text.split()).replace("\\", "\\e"))
    return line.replace("-", "\\-").replace("'", "\\(aq")


def files() -> dict[Path, str]:
    """Return the contents of the generated files."""
    return {FOLDER / "cli.md": page(), **{MAN / name: text for name, text in man_pages().items()}}
