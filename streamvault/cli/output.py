"""Standard output for results only, standard error for log lines and everything else.

Libraries and the Java child process inherit the descriptor of standard output and may write to it. While a command
runs, that descriptor is therefore redirected to standard error, and only the result goes to the real one: a script
reads nothing but the result.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, redirect_stdout, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from streamvault.common.errors import Failed, without_logins
from streamvault.common.processes import make_file

if TYPE_CHECKING:
    from rich.console import Console


STDOUT, STDERR = 1, 2

LINES = "\n\t"
"""What several lines of text have that is not printable."""

_PIPED_COLUMNS = 1000
"""Width of tables that are not printed to a terminal: wide enough to avoid wrapping."""

_JOIN = "\ue000"
"""A blank in a cell at which it does not fold. `plain` lets no such letter through."""

_SHORT = 12
"""Maximum letters of a number that does not fold."""

_LONG = 20
"""Letters of a word that may rather be broken than a number be parted from its unit."""

_LEAST = 8
"""Letters of a word that are left together if it is broken."""


class OutputClosed(Exception):
    """The reader closed standard output (``| head``)."""


def open_standard_streams() -> None:
    """Make sure that descriptors 0 to 2 are open and that unencodable names can be printed.

    A shell may close one of them (``>&-``). The next file or connection opened would get its number, and what a library
    prints would be written to it.
    """
    try:
        while (opened := os.open(os.devnull, os.O_RDWR)) <= STDERR:
            pass
        os.close(opened)
    except OSError:
        return
    for name, descriptor in (("stdout", STDOUT), ("stderr", STDERR)):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(descriptor, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def plain(text: str, but: str = "") -> str:
    """Escape line breaks and control characters, so that an untrusted text cannot control the terminal.

    Args:
        text: the text.
        but: letters that stay as they are.
    """
    return "".join(
        letter if letter.isprintable() or letter in but else letter.encode("unicode_escape").decode() for letter in text
    )


_recorders: list[Callable[[str], object]] = []


def record_by(recorder: Callable[[str], object] | None) -> None:
    """Have each line for standard error, log lines apart, passed to a function, too; None: to none any more."""
    _recorders[:] = [] if recorder is None else [recorder]


def record(line: str) -> None:
    """Pass a line on that was written to standard error; see `record_by`."""
    for recorder in _recorders:
        recorder(line)


def print_stderr(line: str, *, time: str = "") -> None:
    """Write one line to standard error, behind the time if given; ignore errors if it is closed."""
    record(plain(line))
    with suppress(OSError, ValueError):
        # in one piece, as several threads write
        sys.stderr.write(f"{time} {plain(line)}\n" if time else f"{plain(line)}\n")
        sys.stderr.flush()


class Results:
    """The real standard output, reserved for the result; other output is redirected to standard error.

    Attributes:
        in_line: whether what was written ends within a line.
    """

    def __init__(self) -> None:
        self.in_line = False
        self._undo = ExitStack()
        self._real: TextIO = sys.stdout

    def __enter__(self) -> Self:
        with suppress(OSError):
            sys.stdout.flush()
        saved = os.dup(STDOUT)
        self._undo.callback(_restore_stdout, saved)
        os.dup2(STDERR, STDOUT)
        self._undo.enter_context(redirect_stdout(sys.stderr))
        self._real = open(  # noqa: PTH123  (a descriptor, closed by __exit__)
            os.dup(saved), "w", encoding="utf-8", errors="backslashreplace", newline="\n"
        )
        self._undo.callback(_close, self._real)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._undo.close()

    def write(self, text: str) -> None:
        """Write text and flush it.

        Raises:
            OutputClosed: the reader closed the output.
            Failed: the output cannot be written, for example because the disk is full.
        """
        self._write(text.encode(self._real.encoding, self._real.errors or "strict"))

    def raw(self, data: bytes) -> None:
        """Write bytes unchanged, on a terminal with control characters escaped; raise as `write` does."""
        self._write(plain(data.decode(errors="backslashreplace"), LINES).encode() if self._real.isatty() else data)

    def _write(self, data: bytes) -> None:
        self.in_line = not data.endswith(b"\n")
        try:
            self._real.buffer.write(data)
            self._real.buffer.flush()
        except BrokenPipeError:
            raise OutputClosed from None
        except OSError as error:
            raise Failed(
                "the result cannot be written to standard output", where=error.strerror or str(error)
            ) from None

    def line(self, text: str) -> None:
        """Write one line of text."""
        self.write(plain(text) + "\n")

    def lines(self, texts: Iterable[str]) -> None:
        """Write a line for each text."""
        for text in texts:
            self.line(text)

    def fields(self, fields: Mapping[str, object]) -> None:
        """Write one name and value per line; skip values that are empty, false, 0 or None."""
        shown = {name: plain(str(value)) for name, value in fields.items() if value}
        width = max(map(len, shown), default=0)
        self.write("".join(f"{name:<{width}}  {value}\n" for name, value in shown.items()))

    def json(self, value: Mapping[str, Any]) -> None:
        """Write one JSON object on one line."""
        self.write(json.dumps(value, allow_nan=False, default=str) + "\n")

    def table(self, columns: Mapping[str, bool], rows: list[tuple[str, ...]]) -> None:
        """Write a table, on a terminal no wider than that: if its numbers do not fit, a line for each cell instead.

        Args:
            columns: header → whether the column contains numbers (right-aligned).
            rows: the cells of each row.
        """
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        console = self._console()
        room = console.width - 2 * (len(columns) - 1)
        cells = [tuple(map(plain, row)) for row in rows]
        units = [tuple(map(_unbroken, row, columns.values())) for row in cells]
        if sum(min(_longest_word(column), _LONG) for column in zip(columns, *units, strict=True)) <= room:
            cells = units
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        widths = _column_widths([tuple(columns), *cells], room, tuple(columns.values()))
        if sum(widths) > room:
            for row in rows:
                self.write("\n")
                self.fields(dict(zip(columns, row, strict=True)))
            return
        for (header, number), width in zip(columns.items(), widths, strict=True):
            table.add_column(header, justify="right" if number else "left", overflow="fold", width=width)
        for row in cells:
            table.add_row(*row)
        with console.capture() as captured:
            console.print(table)
        self.write("".join(f"{line.rstrip()}\n" for line in captured.get().replace(_JOIN, " ").splitlines()))

    def _console(self) -> Console:
        from rich.console import Console

        width = None if self._real.isatty() else _PIPED_COLUMNS
        return Console(file=self._real, width=width, markup=False, emoji=False, highlight=False)


class LoggedResults(Results):
    """A result's text as log lines of level *info*; payloads are not logged.

    Args:
        log: where they go.
    """

    def __init__(self, log: logging.Logger) -> None:
        super().__init__()
        self._log = log

    def write(self, text: str) -> None:
        """Log the lines of a text."""
        for line in text.splitlines():
            self._log.info("%s", line)

    def raw(self, data: bytes) -> None:
        """Log nothing."""


def _unbroken(cell: str, is_number: bool) -> str:
    """Keep a number and its unit in one line."""
    return cell.replace(" ", _JOIN) if is_number and len(cell) <= _SHORT else cell


def _longest_word(column: tuple[str, ...]) -> int:
    from rich.cells import cell_len

    return max((cell_len(word) for cell in column for word in cell.split()), default=0)


def _column_widths(rows: list[tuple[str, ...]], room: int, numbers: tuple[bool, ...]) -> list[int]:
    """Return how wide each column of a table is, so that the table has room and as few words as possible are broken.

    A column that is narrower than its longest cell folds between words; only the widest words are broken if even the
    words do not fit, and no numbers: then there may be too little room.
    """
    from rich.cells import cell_len

    columns = list(zip(*rows, strict=True))
    full = [max(map(cell_len, column)) for column in columns]
    widths = [_longest_word(column) for column in columns]
    while sum(widths) > room:
        longest, index = max(
            (0 if number else wide, -at) for at, (wide, number) in enumerate(zip(widths, numbers, strict=True))
        )
        if longest <= _LEAST:
            break
        widths[-index] -= 1
    for _ in range(room - sum(widths)):
        folded = [(wide, index) for index, wide in enumerate(widths) if wide < full[index]]
        if not folded:
            break
        widths[min(folded)[1]] += 1
    return widths


def _restore_stdout(saved: int) -> None:
    with suppress(OSError):
        os.dup2(saved, STDOUT)
    os.close(saved)


def _close(stream: TextIO) -> None:
    with suppress(OSError):
        stream.close()


_log = logging.getLogger(__name__)

_VERBOSE = ("py4j", "botocore", "urllib3", "werkzeug", "pyiceberg")
"""Libraries whose tracebacks and request logs duplicate the command's own error line."""

_LEAKING = ("py4j", "botocore", "boto3", "pyiceberg")
"""Libraries whose debug logs contain session tokens, the Java gateway's secret, or settings with passwords."""


def check_log_file(file: str) -> None:
    """Raise `Failed` if a log file cannot be appended to."""
    try:
        with suppress(FileExistsError):
            os.close(make_file(file))
        with Path(file).open("a"):
            pass
    except OSError as error:
        raise Failed("the log file cannot be written", where=f"{file}: {error.strerror or error}") from None


def configure_logs(level: str, file: str | None = None) -> None:
    """Send log lines to standard error.

    Args:
        level: the lowest level to write: ``debug``, ``info``, ``warning`` or ``error``.
        file: a file that gets them, too, those of level *info* in any case, and all other lines for standard error; it
            is appended to. None for none.
    """
    number = shown = logging.getLevelNamesMapping()[level.upper()]
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    handlers[0].setLevel(shown)
    record_by(None)
    if file is not None:
        number = min(number, logging.INFO)
        handlers.append(opened := _LogFile(file, encoding="utf-8", errors="backslashreplace"))
        record_by(lambda line: opened.handle(logging.LogRecord("streamvault", logging.INFO, "", 0, line, None, None)))
    logging.basicConfig(level=number, handlers=handlers, force=True)
    for name in _VERBOSE:
        logging.getLogger(name).setLevel(number if number <= logging.DEBUG else logging.CRITICAL)
    if number <= logging.DEBUG:
        for name in _LEAKING:
            logging.getLogger(name).setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))


class _LogFile(logging.FileHandler):
    """A log file. That it cannot be written, its disk is full, is said once: the command goes on."""

    _said = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (as the base class has it)
        """See the base class."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._said:
            self._said = True
            print_stderr(f"warning: the log file cannot be written: {self.baseFilename}: {error.strerror or error}")

    def close(self) -> None:
        """See the base class. What could not be written is not tried again."""
        with suppress(OSError):
            super().close()


def log_unraisable(error: sys.UnraisableHookArgs) -> None:
    """Log an error that nobody can catch at level *debug*: an interrupt leaves half-made objects of libraries."""
    raised = error.exc_value
    _log.debug("ignored in %r", error.object, exc_info=(type(raised), raised, error.exc_traceback) if raised else None)


class _RedactingFormatter(logging.Formatter):
    """Formatter that begins lines with the local time, removes logins from URIs, and escapes control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the formatted record, with its traceback if there is one."""
        return plain(without_logins(super().format(record)), LINES)
