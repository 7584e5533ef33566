"""The status of archives below a root, and its metrics."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import yaml

from streamvault import export_stream, hold_archive, show_status, write_table
from streamvault.cli import main
from streamvault.cli.measuring import RunFigures
from streamvault.common.errors import Failed
from streamvault.common.progress import Progress
from streamvault.common.units import moment_text, now_utc
from streamvault.exporter import run as exporting
from streamvault.inspect import status
from streamvault.inspect.metrics import METRICS, metrics_text
from streamvault.inspect.reports import (
    ArchiveStatus,
    LeaseStatus,
    PlaceStatus,
    QueueStatus,
    ReplicaStatus,
    StatusReport,
    StreamStatus,
)
from streamvault.layouts.keys import GenerationSpan, manifest_key
from streamvault.manifests.archive import Archive
from streamvault.manifests.plan import FinishedSpan, current_plan
from streamvault.manifests.verbs.check import read_back
from streamvault.runner.inline import InlineRunner
from streamvault.scopes import status as scopes_status
from testkit.killed import stopped_at
from testkit.small_archives import NAME, Vault, a_root, a_vault, archive_of, replace_object
from tests.told import Ran

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
MONITORING = PAGE.parents[1] / "monitoring"
SAMPLE = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)+)\} (\S+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
UNESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Samples = dict[tuple[str, str, str], float]


def parsed(text: str) -> Samples:
    """Read metrics as Prometheus does: name, archive (or root) and table → value; each name with its type, once."""
    found: Samples = {}
    declared = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            declared = line.removeprefix("# TYPE ").removesuffix(" gauge")
            assert not any(name == declared for name, _, _ in found)
        elif not line.startswith("# HELP "):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            assert match[1] == declared
            labels = {
                name: re.sub(r"\\.", lambda escape: UNESCAPED[escape[0]], value)
                for name, value in LABEL.findall(match[2])
            }
            found[match[1], labels.get("archive", labels.get("root", "")), labels.get("table", "")] = float(match[3])
    assert text.endswith("\n")
    return found


vault = a_vault(b"one", b"two", segments=2)


@pytest.fixture(params=["memory", "file"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return a_root()
    (tmp_path / "a root").mkdir()
    return (tmp_path / "a root").as_uri()


def stopped_export(vault: Vault, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Stop an export after it has written so many rows."""
    real = exporting.leave_row
    left: list[FinishedSpan] = []

    def leave(*args: object, **kwargs: object) -> FinishedSpan:
        if len(left) >= rows:
            raise Failed("stopped for a test")
        left.append(real(*args, **kwargs))  # type: ignore[arg-type]
        return left[-1]

    with monkeypatch.context() as patch:
        patch.setattr(exporting, "leave_row", leave)
        with pytest.raises(Failed, match="stopped for a test"):
            export_stream(vault.uri(), vault.root, range_size=8 * 1024, master="inline[1]")


def test_newest_generation_and_what_was_read_back(vault: Vault, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    vault = Vault(vault.folder, root)
    for payload in (b"three", b"four"):
        vault.export()
        vault.add(payload)
    archive = archive_of(root)
    taken = archive.manifest().created
    monkeypatch.setattr(scopes_status, "now_utc", lambda: taken + timedelta(hours=3))
    (one,) = show_status(root).statuses
    assert (one.archive, one.generation, one.events, one.problem) == (vault.archive, 2, 6, "")
    assert (one.created, one.newest_age) == (str(archive.manifest().document()["created"]), 3 * 3600)
    assert (one.unchecked_generations, one.held_generations, one.unfinished_generation, one.gap_bytes) == (2, 0, 0, 0)
    hold_archive(vault.archive, "audit", generation=2)
    read_back(archive, lambda: InlineRunner(1), Progress())
    (one,) = show_status(root).statuses
    assert (one.unchecked_generations, one.held_generations) == (0, 1)
    monkeypatch.setattr(scopes_status, "now_utc", lambda: taken - timedelta(hours=3))
    assert [one.newest_age for one in show_status(root).statuses] == [0.0]


def test_newest_generation_of_another_layout_without_events_hides_no_data(vault: Vault, root: str) -> None:
    vault = Vault(vault.folder, root)
    vault.export("chunks")
    vault.seal()
    vault.export("events")
    (one,) = show_status(root).statuses
    assert (one.generation, one.layout, one.problem) == (2, "events", "")


def test_gaps_are_counted(vault: Vault) -> None:
    vault.export()
    vault.add(b"three")
    vault.truncate(vault.described.tail)
    vault.export(same_stream=True)
    (one,) = show_status(vault.root).statuses
    assert (one.generation, one.gap_bytes) == (2, 2 * (8 + len(b"three")))


@pytest.mark.parametrize("published", [False, True])
def test_unfinished_run_says_how_far_it_is(
    vault: Vault, root: str, monkeypatch: pytest.MonkeyPatch, ran: Ran, *, published: bool
) -> None:
    vault = Vault(vault.folder, root)
    if published:
        vault.export()
    vault.add(*[b"x" * 1000] * 40)
    number = 1 + published
    planned = 2 * 5
    for rows in (0, 5):
        stopped_export(vault, monkeypatch, rows)
        (one,) = show_status(root).statuses
        assert (one.unfinished_generation, one.spans_planned, one.spans_done) == (number, planned, rows)
    assert f"{number}: 5 of {planned} ranges" in ran("status", root).out
    export_stream(vault.uri(), vault.root, master="inline")
    (one,) = show_status(root).statuses
    assert (one.generation, one.unfinished_generation, one.spans_planned, one.spans_done) == (number, 0, 0, 0)


def test_planned_spans_are_those_that_a_run_archives(vault: Vault) -> None:
    """All but those before the head; an export that only has to commit has all."""
    vault.export()
    vault.add(*[b"x" * 1000] * 20)
    vault.truncate(vault.described.tail)
    vault.add(*[b"x" * 1000] * 20)
    with stopped_at(Archive, "commit"):
        export_stream(vault.uri(), vault.root, range_size=4096, same_stream=True, master="inline")
    (one,) = show_status(vault.root).statuses
    plan, _ = current_plan(archive_of(vault.root).place, GenerationSpan.of(2))
    assert plan is not None
    assert plan.gaps
    assert one.spans_done == one.spans_planned > 0


def test_run_that_is_published_meanwhile_is_finished(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped_export(vault, monkeypatch, 0)
    real = status.current_plan

    def late(*args: object) -> object:
        export_stream(vault.uri(), vault.root, master="inline")
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(status, "current_plan", late)
    (one,) = show_status(vault.root).statuses
    assert (one.unfinished_generation, one.spans_planned, one.problem) == (0, 0, "")


def test_metrics_are_those_of_the_status(
    vault: Vault, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = Vault(vault.folder, root)
    vault.export()
    write_table(vault.archive, table="lake", master="inline")
    vault.add(*[b"x" * 1000] * 40)
    stopped_export(vault, monkeypatch, 3)
    file = tmp_path / "metrics" / "status.prom"
    report = show_status(root, metrics=file)
    found = parsed(file.read_text())
    assert report.metrics_file == str(file)

    def of(name: str, table: str = "") -> float | None:
        return found.get((f"streamvault_archive_{name}", vault.archive, table))

    one = report.statuses[0]
    taken = datetime.fromisoformat(one.created).timestamp()
    values = {
        "readable": 1, "generation": 1, "generations_in_force": 1, "newest_timestamp_seconds": taken, "events": 4,
        "bytes": one.bytes, "gap_bytes": 0, "read_back": 0, "unchecked_generations": 1, "held_generations": 0,
        "unfinished_runs": 1, "unfinished_spans": one.spans_planned, "unfinished_spans_done": 3,
    }  # fmt: skip
    assert {name: of(name) for name in METRICS} == values
    assert (of("events", "lake"), of("readable", "lake"), of("read_back", "lake")) == (4, 1, None)
    assert (
        found["streamvault_status_timestamp_seconds", report.root, ""]
        == datetime.fromisoformat(report.seen).timestamp()
    )
    read_back(archive_of(root), lambda: InlineRunner(1), Progress())
    show_status(root, metrics=file)
    found = parsed(file.read_text())
    assert (of("read_back"), of("unchecked_generations")) == (1, 0)
    assert [entry.name for entry in file.parent.iterdir()] == ["status.prom"]


def test_labels_are_escaped() -> None:
    names = ['memory://a"b/c', "memory://a\nb", "memory://a\\nb", "memory://\\", '",x="']
    statuses = tuple(ArchiveStatus(archive=name, stream_name="a/b", generation=at) for at, name in enumerate(names))
    text = metrics_text(StatusReport(root=names[0], seen="2026-01-31T18:00:00.5Z", statuses=statuses))
    found = parsed(text)
    generations = {name: value for (metric, name, _), value in found.items() if metric.endswith("archive_generation")}
    assert generations == {name: at for at, name in enumerate(names)}
    assert found["streamvault_status_timestamp_seconds", names[0], ""] == 1769882400.5


def test_archive_that_cannot_be_read_is_a_line_and_a_warning(vault: Vault, tmp_path: Path, ran: Ran) -> None:
    vault.export()
    other = f"{vault.root}/other"
    export_stream(vault.uri(), other, master="inline")
    replace_object(vault.root, f"{NAME}/{manifest_key(GenerationSpan.of(1))}", b"{")
    file = tmp_path / "status.prom"
    out, err = ran("status", vault.root, "--metrics", str(file))
    lines = {line.split()[0]: line for line in out.splitlines()[2:]}
    assert set(lines) == {str(NAME), f"other/{NAME}"}
    assert "cannot be read" in lines[str(NAME)]
    assert "cannot be read" not in lines[f"other/{NAME}"]
    assert err.startswith(f"warning: {vault.archive}: ")
    found = parsed(file.read_text())
    assert {name for name, archive, _ in found if archive == vault.archive} == {"streamvault_archive_readable"}
    assert found["streamvault_archive_readable", vault.archive, ""] == 0
    assert found["streamvault_archive_readable", f"{other}/{NAME}", ""] == 1


def test_metrics_stay_as_they_were_if_they_cannot_be_written(
    vault: Vault, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    vault.export()
    file = tmp_path / "status.prom"
    file.write_text("as it was")
    assert main(["status", "memory://nowhere/below", "--metrics", str(file)]) == 5

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        capfd.readouterr()
        assert main(["status", vault.root, "--metrics", str(file)]) == 1
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"the file cannot be written (No space left on device): {file}" in err
    assert [entry.name for entry in tmp_path.iterdir() if "status" in entry.name] == ["status.prom"]
    assert file.read_text() == "as it was"


def test_command_prints_a_line_for_each_archive(vault: Vault, ran: Ran) -> None:
    assert ran("status", vault.root).out == f"no archives below {vault.root}\n"
    vault.export()
    header, _, line = ran("status", vault.root).out.splitlines()
    assert header.split() == ["ARCHIVE", "NEWEST", "TAKEN", "AGE", "READ", "BACK"]
    write_table(vault.archive, table="lake", master="inline")
    *_, table = ran("status", vault.root).out.splitlines()
    assert (table.split()[:3], table.split()[-1]) == ([str(NAME), "(table", "lake)"], "-")
    assert (line.split()[:2], line.split()[-1]) == ([str(NAME), "1"], "no")
    hold_archive(vault.archive, "audit", generation=1)
    assert ran("status", vault.root).out.splitlines()[0].split()[-1] == "HELD"
    one, _ = json.loads(ran("status", vault.root, "--json").out)["statuses"]
    assert (one["archive"], one["held_generations"], one["unchecked_generations"]) == (vault.archive, 1, 1)


@pytest.fixture(scope="module")
def written() -> dict[str, set[str]]:
    """Each metric of the status and of a running command, with its labels."""
    uri = "local:///a/b/c"
    report = StatusReport(
        root="memory://a",
        scope="local:///a/b/",
        seen=now_utc().isoformat(),
        statuses=tuple(
            ArchiveStatus(archive="memory://a/b/c", stream_name="b/c", created=moment_text(now_utc()), table=table)
            for table in ("", "t")
        ),
        live_streams=(StreamStatus(stream=uri, archive="memory://a/b/c", is_archived=True, unarchived=1),),
        leases=(LeaseStatus(lease=uri, stream=uri, purpose="append", host="h", pid=1, alive=True),),
        queues=(QueueStatus(queue=uri),),
        replicas=(
            ReplicaStatus(replica=uri, source=uri, state="replica", reached=moment_text(now_utc()), lag_bytes=1),
        ),
        watched_places=(PlaceStatus(place="local:///a/b"),),
    )
    found: dict[str, set[str]] = {}
    for line in (metrics_text(report) + RunFigures().metrics("rotate")).splitlines():
        if not line.startswith("#"):
            name, _, rest = line.partition("{")
            found.setdefault(name, set()).update(re.findall(r'(\w+)="', rest))
    return found


def test_page_names_the_metrics_that_are_written(written: dict[str, set[str]]) -> None:
    named = set(re.findall(r"\bstreamvault_\w+", PAGE.read_text()))
    of_serve = {name for name in named if name.startswith("streamvault_serve_")}  # compared where it is tested
    assert named - of_serve == written.keys()


def names_and_labels(query: str) -> tuple[set[str], set[str]]:
    """Return the metrics that a query asks for, and the labels that it selects by."""
    names = set(re.findall(r"\bstreamvault_\w+", query))
    return names, set(re.findall(r"[{,](\w+)=~?\"", query)) - {"__name__"}


def test_dashboard_asks_for_metrics_and_labels_that_are_written(written: dict[str, set[str]]) -> None:
    board = json.loads((MONITORING / "grafana.json").read_text())
    asked: set[str] = set()
    for target in (target for panel in board["panels"] for target in panel["targets"]):
        names, labels = names_and_labels(target["expr"])
        labels |= set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert names
        assert names <= written.keys()
        assert all(labels <= written[name] for name in names), target["expr"]
        asked |= names
    kinds = {name.split("_")[1] for name in asked}
    assert kinds == {"status", "place", "archive", "stream", "lease", "queue", "replica"}
    for one in board["templating"]["list"]:
        if one["type"] == "query":
            found = re.fullmatch(r"label_values\((\w+), (\w+)\)", one["query"]["query"])
            assert found is not None
            assert found[2] in written[found[1]]
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(numbers) == len(set(numbers))
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert not [query for query in queries if "vector(0)" in query], "without metrics, nothing is 0"
    assert all(query.count("(") == query.count(")") and query.count("{") == query.count("}") for query in queries)


def test_alert_rules_ask_for_metrics_and_labels_that_are_written(written: dict[str, set[str]]) -> None:
    (group,) = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    asked: set[str] = set()
    for rule in group["rules"]:
        assert rule.keys() <= {"alert", "expr", "for", "annotations"}
        names, labels = names_and_labels(rule["expr"])
        assert names
        assert names <= written.keys(), rule["alert"]
        for label in re.findall(r"on \((\w+)\)", rule["expr"]):
            assert all(label in written[name] for name in names)
        # the labels of an alert are those of the left side of an "and"
        first = re.match(r".*?\b(streamvault_\w+)", rule["expr"])
        assert first is not None
        said = set(re.findall(r"{{ \$labels\.(\w+) }}", rule["annotations"]["summary"]))
        assert said <= written[first[1]], rule["alert"]
        assert labels <= set().union(*(written[name] for name in names)), rule["alert"]
        asked |= names
    kinds = {"status", "place", "archive", "stream", "lease", "queue", "replica", "run"}
    assert {name.split("_")[1] for name in asked} == kinds
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"])
