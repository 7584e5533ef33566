"""The commands of examples/, as they are written but for their places, on a real Pravega and a real MinIO."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamvault.cli import main
from streamvault.streamstore.model import StreamName
from testkit.servers.certificates import make_certificates
from testkit.servers.examples import KUBERNETES, SYSTEMD, compose_commands, pod_commands, unit_commands
from testkit.streams import digest_of, make_stream
from tests.integration.conftest import Place

SOURCES = re.compile(r"pravega://(?:controller\.example\.com|pravega-controller\.pravega|pravega):9090/\w+/")


@pytest.mark.pravega
@pytest.mark.minio
def test_commands_of_the_examples_run(place: Place, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    make_stream(place.store, place.source, events=40, largest=2000)
    scope, standby = place.source.scope, f"{place.source.scope}-standby"

    certificates = make_certificates(tmp_path)
    for name, file in (("tls.crt", certificates.certificate), ("tls.key", certificates.key)):
        (tmp_path / name).write_bytes(file.read_bytes())
    (tmp_path / "login").write_text("reader:secret")

    def here(text: str) -> str:
        text = text.replace("s3://vault/backups/billing/", f"{place.root}/{scope}/").replace("%d", str(tmp_path))
        text = text.replace("s3://vault-readers", f"s3://{place.bucket}/readers")
        text = re.sub(r"\b0\.0\.0\.0:\d+$", "127.0.0.1:0", "0" if text == "9464" else text)
        text = text.replace("pravega://standby.example.com:9090/shop/", f"{place.server.uri}/{standby}/")
        text = SOURCES.sub(f"{place.server.uri}/{scope}/", text)
        return text.replace("s3://vault/backups", place.root).replace("/var/lib/node_exporter", str(tmp_path))

    def run(words: list[str], folder: Path | None = None) -> None:
        if folder is not None:
            (tmp_path / "streams.toml").write_text(here((folder / "streams.toml").read_text()))
        words = [here(word).replace("/etc/streamvault", str(tmp_path)) for word in words]
        ends = ["--for", "1s"] if words[0] in {"follow", "serve"} or "--follow" in words else []
        runs = ["--master", "inline"] if words[0] not in {"serve", "status"} else []
        capfd.readouterr()
        assert main([*words, *ends, *runs]) == 0, capfd.readouterr().err

    for words in unit_commands():
        run(words, SYSTEMD)
    for words in pod_commands():
        run(words, KUBERNETES)
    for words in compose_commands():
        run(words)
    uri, replica_uri = f"{place.server.uri}/{place.source}", f"{place.server.uri}/{standby}/{place.source.stream}"
    for of, line in (
        ("rotate", f'stream_archived{{stream="{uri}",archive="{place.archive}"}} 1'),
        ("follow", f'stream_unarchived_bytes{{stream="{uri}",archive="{place.archive}"}} 0'),
        ("replicate", f'replica_lag_bytes{{replica="{replica_uri}",source="{uri}"}} 0'),
    ):
        assert f"\nstreamvault_{line}\n" in (tmp_path / f"streamvault-{of}.prom").read_text()
    replica = StreamName(standby, place.source.stream)
    assert digest_of(place.store, replica) == digest_of(place.store, place.source)
