"""Scopes of small streams in an embedded store, with a root for archives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streamvault.cli import main
from streamvault.common.progress import Progress
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import SegmentId, StreamConfiguration, StreamName
from testkit.streams import append_events, digest_of

NAMES = ("a", "b", "c", "d", "e", "f")


@dataclass(frozen=True)
class Scopes:
    """Streams in the scope ``shop``."""

    folder: Path
    capfd: pytest.CaptureFixture[str]

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.folder / "streams")

    @property
    def root(self) -> str:
        return f"file://{self.folder}/vault"

    def uri(self, path: str) -> str:
        return f"local://{self.folder}/streams/{path}"

    def make(self, names: Sequence[str] = NAMES, scope: str = "shop") -> None:
        with self.store as store:
            store.create_scope(scope)
            for number, name in enumerate(names):
                store.create_stream(StreamName(scope, name), StreamConfiguration())
                self.add(name, number + 3, scope=scope)

    def add(self, name: str, events: int, *, scope: str = "shop") -> None:
        with self.store as store:
            append_events(store, StreamName(scope, name), SegmentId(0, 0), [name.encode() * 9] * events)

    def delete(self, name: str) -> None:
        with self.store as store:
            store.delete(StreamName("shop", name))

    def digest(self, scope: str, name: str) -> object:
        with self.store as store:
            return digest_of(store, StreamName(scope, name))

    def run(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Run a command; its exit code and what it prints."""
        self.capfd.readouterr()
        code = main([*arguments, "--master", "inline", "--json"])
        return code, json.loads(self.capfd.readouterr().out)

    def outcomes(self, *arguments: str) -> dict[str, str]:
        """Run a command; how it ended for each stream."""
        return {each["stream"].rpartition("/")[2]: each["status"] for each in self.run(*arguments)[1]["outcomes"]}


class Heard(Progress):
    """What was said, and what a test does when it hears it."""

    def __init__(self, **answers: Any) -> None:
        self.heard: list[str] = []
        self.answers = answers

    def note(self, text: str) -> None:
        self.heard.append(text)
        for words, answer in list(self.answers.items()):
            if text.startswith(words.replace("_", ": ")):
                del self.answers[words]
                answer()


ALL_DONE = dict.fromkeys(NAMES, "done")
