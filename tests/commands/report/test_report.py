"""The page and the charts, on the embedded store."""

from __future__ import annotations

import errno
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import altair as alt
import pytest

from streamvault import hold_archive, write_report
from streamvault.cli import main
from streamvault.common.errors import Conflict, Failed, Usage
from streamvault.manifests.verbs.costs import Requests
from streamvault.report import write
from streamvault.streamstore.model import StreamConfiguration
from testkit.small_archives import NAME, Vault, a_root
from tests.counting import counted

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    vault = Vault(tmp_path)
    with vault.store as store:
        store.create_stream_and_scope(NAME, StreamConfiguration(tags=(HOSTILE,)))
    vault.add(b"one", b"two")
    vault.export()
    vault.add(b"three")
    vault.export("chunks")
    return vault


class Elements(HTMLParser):
    """The elements of a page, and the specifications in it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.specs: list[dict[str, object]] = []
        self._in_spec = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in_spec = tag == "script" and dict(attrs).get("class") == "spec"

    def handle_endtag(self, _tag: str) -> None:
        self._in_spec = False

    def handle_data(self, data: str) -> None:
        if self._in_spec:
            self.specs.append(json.loads(data))


def page_of(place: str, folder: Path, **options: str) -> tuple[str, Elements]:
    file = folder / "page.html"
    report = write_report(place, output=file, **options)
    assert report.file == str(file)
    text = file.read_text()
    return text, Elements(text)


def test_page_of_an_archive(vault: Vault, tmp_path: Path) -> None:
    hold_archive(vault.archive, "audit", generation=1)
    text, found = page_of(vault.archive, tmp_path)
    assert [tag for tag, _ in found.tags].count("h3") == 5
    for spec in found.specs:  # valid by Vega-Lite's schema, with the data
        alt.Chart.from_dict(spec) if "layer" not in spec else alt.LayerChart.from_dict(spec)
    heat, bars, segments = ([*spec["datasets"]["rows"]] for spec in found.specs)  # type: ignore[index]
    assert [(row["generations"], row["bytes"]) for row in heat] == [("1", "22"), ("2", "13")]
    assert [row["bytes per second"] == "not known" for row in heat] == [True, False]
    assert float(heat[1]["bytes per second"].replace(",", "")) == pytest.approx(heat[1]["rate"], rel=0.1)
    assert [row["state"] for row in bars] == ["held", "not read back"]
    assert [(row["segment"], row["bytes"], row["events"]) for row in segments] == [("0.#epoch.0", "35", "3")]
    assert f"streamvault import {vault.archive} STREAM --generation 1" in text


def test_page_runs_no_text_of_the_stream_and_loads_nothing(vault: Vault, tmp_path: Path) -> None:
    text, found = page_of(vault.archive, tmp_path)
    assert "alert(1)" in text  # the tag is shown, as text
    assert HOSTILE not in text
    assert "img" not in [tag for tag, _ in found.tags]
    assert not [attributes for _, attributes in found.tags if {"src", "onerror"} & attributes.keys()]
    assert all((attributes.get("href") or "#").startswith("#") for _, attributes in found.tags)
    policy = next(a["content"] for _, a in found.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert (policy or "").startswith("default-src 'none';")


def test_page_of_a_root_has_a_row_and_a_section_for_each_archive(vault: Vault, tmp_path: Path) -> None:
    vault.export("events", same_stream=True)
    text, found = page_of(vault.root, tmp_path)
    assert [a.get("id") for tag, a in found.tags if tag == "section"] == ["a0"]
    assert '<a href="#a0">scope/stream</a>' in text
    row = text[text.index('<a href="#a0">') :].partition("</tr>")[0]
    assert re.search(r">\d{4}-\d\d-\d\d \d\d:\d\d:\d\d</td>", row), "a time as in the rest of the page"


@pytest.mark.parametrize("is_root", [True, False])
def test_each_manifest_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_root: bool) -> None:
    vault = Vault(tmp_path, root := a_root())
    vault.make(events=5)
    for _ in range(3):
        vault.export(same_stream=True)
        vault.add(b"more")
    of_folders = 3 if is_root else 0  # the root, the scope, and the first archive in it
    with counted(monkeypatch) as requests:
        write_report(root if is_root else vault.archive, output=tmp_path / "page.html")
    assert requests == [Requests(0, of_folders + 1, 3)]


def test_page_of_a_root_with_many_archives_has_the_table_only(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "MAX_SECTIONS", 0)
    _, found = page_of(vault.root, tmp_path)
    assert found.specs == []
    assert write_report(vault.root, output=tmp_path / "page.html").warnings == (
        "charts are drawn for up to 0 archives; there are 1: name one",
    )


def test_page_of_a_stream_has_the_live_tail(vault: Vault, tmp_path: Path) -> None:
    vault.add(b"four")
    _, found = page_of(vault.uri(), tmp_path)
    (spec,) = found.specs
    assert [row["bytes"] for row in spec["datasets"]["rows"]] == ["47"]  # type: ignore[index]


def test_what_is_not_archived_yet_is_counted(vault: Vault, tmp_path: Path) -> None:
    for expected in (0, 12):
        assert write_report(vault.archive, output=tmp_path / "a.html", stream=vault.uri()).unarchived == expected
        vault.add(b"four")


def test_another_stream_is_not_taken_for_the_archived_one(vault: Vault, tmp_path: Path) -> None:
    other = Vault(tmp_path / "other")
    other.create(segments=2)
    with pytest.raises(Conflict, match="is not the one that was archived"):
        write_report(vault.archive, output=tmp_path / "a.html", stream=other.uri())


def test_charts_are_written_as_svg_and_are_the_same_each_time(vault: Vault, tmp_path: Path) -> None:
    written = [write_report(vault.archive, svg=tmp_path / name).charts for name in ("one", "two")]
    names = [Path(file).relative_to(tmp_path / "one") for file in written[0]]
    assert [str(name) for name in names] == [f"{NAME}/{chart}.svg" for chart in ("heat-map", "generations", "segments")]
    for one, two in zip(*written, strict=True):
        assert Path(one).read_text().startswith("<svg")
        assert Path(one).read_bytes() == Path(two).read_bytes()


def test_errors_are_one_line(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.html"
    with pytest.raises(Usage, match="nothing to write"):
        write_report(vault.archive)
    with pytest.raises(Usage, match=r"^stream is of one archive"):
        write_report(vault.root, output=file, stream=vault.uri())
    assert main(["report", vault.archive, "-o", "/dev/null/a.html"]) == 1
    assert re.fullmatch(r"streamvault: the file cannot be written .*\n", capfd.readouterr().err)
    assert main(["report", f"{vault.root}/none", "-o", str(file)]) == 5
    assert capfd.readouterr().err.count("\n") == 1
    for module in ("page", "charts"):
        monkeypatch.delitem(sys.modules, f"streamvault.report.{module}", raising=False)
    monkeypatch.delattr("streamvault.report.page", raising=False)
    monkeypatch.setitem(sys.modules, "altair", None)
    assert main(["report", vault.archive, "-o", str(file)]) == 2
    assert "pip install 'streamvault[report]'" in capfd.readouterr().err
    assert not file.exists()


def test_a_page_is_replaced_whole(vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "page.html"
    file.write_text("old")

    def full(self: Path, text: str, encoding: str) -> None:
        self.write_bytes(text[:100].encode(encoding))
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(Failed, match="No space left"):
            write_report(vault.archive, output=file)
    assert file.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".page")] == []
    write_report(vault.archive, output=file)
    assert file.read_text().startswith("<!doctype html>")
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".page")] == []
