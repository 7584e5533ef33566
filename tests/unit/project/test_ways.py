"""From a command to the bytes that it writes, a reader of the code opens few files."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pytest

from streamvault.cli import main
from streamvault.streamstore.local.store import LocalAppender
from streamvault.streamstore.model import StreamConfiguration, StreamName
from testkit.small_archives import Vault

PACKAGE = str(Path(__file__).parents[3] / "streamvault")


class Ways:
    """The files on the call stack of each write, threads' starts included: from the module of the command on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, is_data: Callable[[str], bool]) -> None:
        self.longest: list[str] = []
        self._is_data = is_data
        begun: dict[threading.Thread, list[str]] = {}
        start, put, append = threading.Thread.start, obstore.put, LocalAppender.append

        def stack() -> list[str]:
            here = [frame.filename for frame in traceback.extract_stack()]
            return begun.get(threading.current_thread(), []) + here

        def starting(thread: threading.Thread) -> None:
            begun[thread] = stack()
            start(thread)

        def putting(store: Any, key: str, *arguments: Any, **options: Any) -> Any:
            self._note(key, stack())
            return put(store, key, *arguments, **options)

        def appending(appender: LocalAppender, block: Any) -> None:
            self._note("append", stack())
            append(appender, block)

        monkeypatch.setattr(threading.Thread, "start", starting)
        monkeypatch.setattr(obstore, "put", putting)
        monkeypatch.setattr(LocalAppender, "append", appending)

    def _note(self, what: str, stack: list[str]) -> None:
        if self._is_data(what):
            files = list(dict.fromkeys(file for file in stack if file.startswith(PACKAGE)))
            while files and files[0].rpartition("/")[2] in {"__init__.py", "app.py", "options.py"}:
                del files[0]  # the command line
            self.longest = max(self.longest, files, key=len)


@pytest.mark.parametrize(
    ("most", "command", "data"),
    [
        (12, "export {stream} {root} --layout events", "/events/"),
        (12, "export {stream} {root} --layout chunks", "/chunks/"),
        (8, "import {archive} {other}", "append"),
        (9, "copy {stream} {other}", "append"),
        (10, "replicate {stream} {other}", "append"),
        (7, "append {archive} --into {target} --own-segments", "append"),
        (9, "handoff {archive} --format parquet --root {root}", ".parquet"),
    ],
)
def test_way_from_a_command_to_its_bytes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, most: int, command: str, data: str
) -> None:
    vault = Vault(tmp_path)
    vault.make()
    if "export" not in command:
        vault.export("chunks")
    with vault.store as store:
        store.create_stream(StreamName("scope", "target"), StreamConfiguration())
    other, target = (vault.uri(StreamName("scope", name)) for name in ("other", "target"))
    places = {"stream": vault.uri(), "root": vault.root, "archive": vault.archive, "other": other, "target": target}
    ways = Ways(monkeypatch, lambda what: data in what)
    assert main([*command.format(**places).split(), "--master", "inline"]) == 0
    assert ways.longest, "no data were written"
    assert len(ways.longest) <= most - ("root" in command), ways.longest  # requests to S3 are repeated in one more file
