"""The page of settings says which commands have a second login."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamvault import export_stream
from streamvault.cli import main
from streamvault.streamstore.errors import AccessDenied
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.pravega.settings import PravegaSettings
from tests.pages import DOCS
from tests.site_of_pages import make_orders

TARGET = "pravega://127.0.0.1:1/shop/orders"
COMMANDS = {
    "export": f"{TARGET} VAULT",
    "import": f"VAULT/shop/orders {TARGET}",
    "copy": f"STREAM {TARGET}",
    "append": f"STREAM --into {TARGET}",
    "join": f"STREAM --into {TARGET}",
    "replicate": f"STREAM {TARGET}",
    "promote": TARGET,
    "move": f"STREAM {TARGET}",
    "translate": f"STREAM {TARGET} shop/orders/0.#epoch.0:0-8",
    "streams": "pravega://127.0.0.1:1/shop/",
    "sweep": "pravega://127.0.0.1:1/shop/",
    "status": "pravega://127.0.0.1:1/shop/",
    "report": f"{TARGET} -o page.html",
    "plan": TARGET,
    "handoff": f"{TARGET} --root VAULT",
    "rotate": f"{TARGET} VAULT",
    "follow": f"{TARGET} VAULT",
    "request-restore": f"VAULT/shop/orders STREAM --queue {TARGET}",
    "work": TARGET,
    "queue show": TARGET,
}
"""Commands with a stream of another cluster. (`doctor` first asks whether anything listens at its port.)"""


def test_commands_with_a_login_for_the_second_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []

    def refuse(_: object, settings: PravegaSettings) -> None:
        used.append(settings.username)
        raise AccessDenied("denied")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("streamvault.streamstore.pravega.store.PravegaStore.__init__", refuse)
    monkeypatch.setenv("STREAMVAULT_MASTER", "inline")
    for prefix in ("PRAVEGA_", "PRAVEGA_TARGET_"):
        monkeypatch.setenv(f"{prefix}USERNAME", prefix)
        monkeypatch.setenv(f"{prefix}PASSWORD", "secret")
    with LocalStore(tmp_path / "here") as store:
        make_orders(store, StreamName("shop", "orders"))
    stream, vault = f"local://{tmp_path}/here/shop/orders", f"file://{tmp_path}/vault"
    (tmp_path / "vault").mkdir()
    export_stream(stream, vault)
    second = set()
    for command, arguments in COMMANDS.items():
        used.clear()
        line = f"{command} {arguments}".replace("STREAM", stream).replace("VAULT", vault)
        assert main(line.split()) == 1, line
        (login,) = set(used)
        second |= {command} if login == "PRAVEGA_TARGET_" else set()
    page = (DOCS / "reference/commands.md").read_text()
    (told,) = re.findall(r"^\| `PRAVEGA_TARGET_USERNAME`.*? second stream of ([^;]*);", page, re.MULTILINE)
    assert set(re.findall("`([a-z]+)`", told)) == second
