"""What the data source of a stream plans, without Spark: options, filters, partitions, events.

The page on the data sources has their options.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, GreaterThanOrEqual, LessThan

from streamvault.common.errors import Failed, Problem, Usage
from streamvault.spark.archive_source import ArchiveDataSource
from streamvault.spark.options import options_for, read_options, write_options
from streamvault.spark.pravega_reader import BATCH_ROWS, DataLoss
from streamvault.spark.pravega_source import PravegaDataSource
from streamvault.streamstore.framing import NotAnEvent
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import StreamCut
from testkit.small_archives import NAME
from testkit.streams import events_of, frame, make_stream, payloads
from tests.pages import DOCS, sections
from tests.spark_reads import FIRST, events_in, read, schema_of, single, source, text, uri
from tests.unit.streamstore.test_model import java_cut


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "the option is missing: option controller of format pravega. Give controller"),
        ({"controller": "pravega://h:1", "scope": "s"}, "the option is missing: option stream"),
        ({"path": "pravega://h:1/s/t", "scope": "s"}, "the stream is given twice"),
        ({"path": "s3://h:1/s/t"}, "not a stream's URI"),
        ({"controller": "http://h:1", "scope": "s", "stream": "t"}, "not a stream's URI"),
        ({"path": "local:///a/s/t", "startOffset": "0"}, "unknown option: option startoffset"),
        ({"path": "local:///a/s/t", "from": "0"}, "a stream cut is a JSON object"),
        ({"path": "local:///a/s/t", "start_stream_cut": "x"}, "option start_stream_cut of format pravega"),
        ({"path": "local:///a/s/t", "columns": ""}, "Give a value, or omit the option."),
        ({"path": "local:///a/s/t", "from": '{"a/b/0.#epoch.0": 1}'}, "segment of another stream"),
        (
            {"path": "local:///a/s/t", "from": "latest", "startingOffsets": "latest"},
            "the option cannot be used with from",
        ),
        ({"path": "local:///a/s/t", "failOnDataLoss": "maybe"}, "'maybe' is not valid"),
        ({"path": "local:///a/s/t", "boundaries": "none"}, "Give one of segment, walked, guessed"),
        ({"path": "local:///a/s/t", "rangeSize": "1KiB"}, "the range size must be at least 1048576 bytes"),
        ({"path": "local:///a/s/t", "maxBytesPerTrigger": "0"}, "must be positive"),
        ({"path": "local:///a/s/t", "maxEventsPerTrigger": "0"}, "an integer of at least 1"),
        ({"path": "local:///a/s/t", "columns": "pointer,key"}, "unknown column: key"),
        ({"path": "local:///a/s/t", "metadata": "StreamInfo"}, "the source reads events only"),
        ({"path": "local:///a/s/t", "startingTimestamp": "1"}, "Pravega does not keep the time of an event"),
        ({"path": "pravega://h:1/s/t", "username": "u"}, "the option is missing: option password"),
        ({"path": "pravega://h:1/s/t", "password": "p"}, "the option is missing: option username"),
        ({"path": "pravega://h:1/s/t", "verifyHostname": "maybe"}, "'maybe' is not valid"),
        ({"path": "local:///a/s/t", "caFile": "/ca.pem"}, "a folder needs no login: option caFile"),
        ({"path": "local:///a/s/t", "minPartitions": "4"}, "Also give boundaries=walked or boundaries=guessed"),
        ({"path": "local:///a/s/t", "minPartitions": "0", "boundaries": "walked"}, "an integer of at least 1"),
    ],
)
def test_invalid_option_is_one_line(options: dict[str, str], said: str) -> None:
    with pytest.raises(Problem) as caught:
        PravegaDataSource(options).schema()
    assert said in str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


SECRET = " pa:ss word "
LOGIN = {"username": "reader", "password": SECRET, "caFile": "/ca.pem", "verifyHostname": "false"}
CLUSTER = {"path": "pravega+tls://h:1/s/t"}


def test_login_is_that_of_the_options_before_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"USERNAME": "other", "PASSWORD": "theirs", "CA_FILE": "/other.pem"}.items():
        monkeypatch.setenv(f"PRAVEGA_{name}", value)
    reading = read_options({**CLUSTER, **LOGIN})
    writing = write_options({**CLUSTER, **LOGIN}, schema_of("payload binary"), overwrite=False)
    for settings_ in (reading.address.settings, writing.address.settings):
        assert (settings_.login(), settings_.ca_file) == (f"reader:{SECRET}", "/ca.pem")
        assert settings_.verify_hostname is False
    assert read_options(CLUSTER).address.settings.login() == "other:theirs"
    mixed = read_options({**CLUSTER, "caFile": "/ca.pem"}).address
    assert (mixed.settings.login(), mixed.settings.ca_file) == ("other:theirs", "/ca.pem")
    # stores that stay open for the next task are kept apart by their logins
    assert reading.address != read_options(CLUSTER).address


def test_password_is_in_no_message_and_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {**CLUSTER, **LOGIN}
    assert SECRET not in repr(read_options(given)) + repr(PravegaDataSource(given).reader(schema_of("length int")))
    wrong = ({"columns": "key"}, {"rangeSize": "1"}, {"startAt": "0"}, {"username": ""}, {"path": "local:///a/s/t"})
    for each in wrong:
        with pytest.raises(Problem) as caught:
            PravegaDataSource({**given, **each}).schema()
        assert SECRET.strip() not in str(caught.value)
    creation = {"owner": "me", "provider": "pravega", "path": given["path"]}
    with pytest.raises(Usage, match="a login cannot be kept with a table") as refused:
        PravegaDataSource({**creation, **{f"option.{name}": value for name, value in LOGIN.items()}}).schema()
    assert SECRET.strip() not in str(refused.value)
    schema = PravegaDataSource({**creation, "option.caFile": "/ca.pem"}).schema()
    assert read_options(options_for(LOGIN, schema)).address.settings.login() == f"reader:{SECRET}"
    monkeypatch.setenv("STREAMVAULT_SEND_LOGINS", "no")
    with pytest.raises(Usage, match="logins are not sent to executors"):
        read_options(given)


@pytest.mark.parametrize("boundaries", ["segment", "walked", "guessed"])
def test_every_event_is_read_once(store: LocalStore, tmp_path: Path, boundaries: str) -> None:
    make_stream(store, NAME, events=6000, largest=3_000_000)
    wanted = list(events_of(store, NAME))
    partitions, found = read(source(tmp_path, boundaries=boundaries, rangeSize="1MiB"))
    assert found == wanted
    if boundaries != "segment":
        assert len(partitions) > len({pointer.segment for pointer, _ in wanted})


@pytest.mark.parametrize("boundaries", ["walked", "guessed"])
def test_there_are_as_many_partitions_as_wanted(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boundaries: str
) -> None:
    monkeypatch.setattr("streamvault.spark.options.MIN_RANGE_SIZE", 1)
    single(store, [b"x" * 999_992] * 12, segments=2)
    partitions, found = read(source(tmp_path, boundaries=boundaries, minPartitions="8"))
    assert found == list(events_of(store, NAME))
    assert len(partitions) == 8
    assert len(read(source(tmp_path, boundaries=boundaries))[0]) == 2


def test_location_of_a_table_is_read(store: LocalStore, tmp_path: Path) -> None:
    """Hadoop's paths have one slash behind the scheme where there is no host."""
    single(store, [b"event"])
    made = PravegaDataSource({"path": uri(tmp_path).replace(":///", ":/")})
    assert read(made)[1] == list(events_of(store, NAME))


def test_filters_are_optional_to_spark(tmp_path: Path) -> None:
    """By this comparison, PySpark tells whether to insist on the setting that it calls `pushFilters` with."""
    reader = source(tmp_path).reader(source(tmp_path).schema())
    assert reader.pushFilters.__func__ is DataSourceReader.pushFilters


def test_events_between_two_cuts_are_read(store: LocalStore, tmp_path: Path) -> None:
    make_stream(store, NAME, events=500, largest=5000)
    described, wanted = store.describe(NAME), list(events_of(store, NAME))
    _, nothing = read(source(tmp_path, startingOffsets="latest"))
    assert nothing == []
    cut = text(described.head)
    assert read(source(tmp_path, endingOffsets=cut))[1] == []
    assert read(source(tmp_path, **{"from": cut}))[1] == wanted
    assert read(source(tmp_path, start_stream_cut="unbounded", end_stream_cut="unbounded"))[1] == wanted
    assert read(source(tmp_path, start_stream_cut=cut, end_stream_cut=cut))[1] == []
    offsets = described.head.offsets
    lists = [[one.number for one in offsets], [one.epoch for one in offsets], offsets.values()]
    as_java = java_cut(":".join(["0", str(NAME), *(",".join(map(str, each)) for each in lists)]))
    assert read(source(tmp_path, start_stream_cut=as_java))[1] == wanted
    assert read(source(tmp_path, end_stream_cut=as_java))[1] == []
    beyond = StreamCut(NAME, {segment: offset + 8 for segment, offset in described.tail.offsets.items()})
    with pytest.raises(Problem, match="beyond the stream's tail"):
        read(source(tmp_path, to=text(beyond)))


@pytest.mark.parametrize("boundaries", ["segment", "walked", "guessed"])
def test_filters_leave_out_segments_and_ranges(store: LocalStore, tmp_path: Path, boundaries: str) -> None:
    single(store, [b"x" * 65_528] * 80, segments=2)
    wanted = list(events_of(store, NAME))
    low, high = 3 * 1024 * 1024, 4 * 1024 * 1024
    asked: list[Filter] = [EqualTo(("segment",), 1), GreaterThanOrEqual(("offset",), low), LessThan(("offset",), high)]
    partitions, found = read(source(tmp_path, boundaries=boundaries, rangeSize="1MiB"), asked)
    inside = [event for event in wanted if event[0].segment.number == 1 and low <= event[0].offset < high]
    assert [event for event in found if event in inside] == inside
    assert {pointer.segment.number for pointer, _ in found} == {1}
    # exactly one range, found by a walk; up to it, each range must be proved
    assert len(partitions) == {"segment": 1, "walked": 1, "guessed": 4}[boundaries]
    assert max(pointer.offset for pointer, _ in found) < high
    everything: list[Filter] = [EqualTo(("segment",), 7)]
    assert read(source(tmp_path), everything)[1] == []


def test_wrong_guess_fails_the_read(store: LocalStore, tmp_path: Path) -> None:
    """Payloads that are themselves chains of events: the guess is wrong in the middle of one of them."""
    inner = frame(b"y" * 24)
    single(store, [inner * 20_000, b"z" * 100] * 12)
    wanted = list(events_of(store, NAME))
    assert read(source(tmp_path, boundaries="walked", rangeSize="1MiB"))[1] == wanted
    with pytest.raises(Problem, match="a payload looks like events") as caught:
        read(source(tmp_path, boundaries="guessed", rangeSize="1MiB"))
    assert "walked" in caught.value.todo


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_guessed_ranges_are_exact_or_refused(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    folder = tmp_path_factory.mktemp("guesses")
    with LocalStore(folder / "streams") as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamvault.spark.options.MIN_RANGE_SIZE", 1)
        single(store, list(payloads(60, seed, largest=3000)))
        wanted = list(events_of(store, NAME))
        try:
            found = read(source(folder, boundaries="guessed", rangeSize="512"))[1]
        except Failed:
            return  # the message recommends it
        assert found == wanted


def test_cut_inside_an_event_is_refused(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b"x" * 100] * 10)
    with pytest.raises(NotAnEvent):
        read(source(tmp_path, to='{"scope/stream/0.#epoch.0": 250}'))
    with pytest.raises(NotAnEvent):
        read(source(tmp_path, **{"from": '{"scope/stream/0.#epoch.0": 50}'}))


def test_truncated_start_is_data_loss_unless_allowed(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b"x" * 92] * 100)
    store.truncate(StreamCut(NAME, {FIRST: 5000}))
    start = '{"scope/stream/0.#epoch.0": 100}'
    with pytest.raises(DataLoss, match="now begins at 5000, not at 100"):
        read(source(tmp_path, **{"from": start}))
    found = read(source(tmp_path, **{"from": start, "failOnDataLoss": "false"}))[1]
    assert [pointer.offset for pointer, _ in found] == list(range(5000, 10_000, 100))
    assert len(read(source(tmp_path))[1]) == 50


def test_truncation_after_planning_is_data_loss_unless_allowed(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b"x" * 92] * 100)
    for may in ("true", "false"):
        reader = source(tmp_path, failOnDataLoss=may).reader(source(tmp_path).schema())
        (partition,) = reader.partitions()
        offset = 3000 if may == "true" else 7000
        store.truncate(StreamCut(NAME, {FIRST: offset}))
        if may == "true":
            with pytest.raises(DataLoss, match="now begins at 3000"):
                events_in(reader.read(partition))
        else:
            assert [pointer.offset for pointer, _ in events_in(reader.read(partition))] == list(
                range(7000, 10_000, 100)
            )


def test_batches_are_bounded_in_rows_and_bytes(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b""] * 300_000 + [b"x" * 1_000_000] * 10)
    reader = source(tmp_path).reader(source(tmp_path).schema())
    (partition,) = reader.partitions()
    sizes = [(batch.num_rows, batch["payload"].nbytes) for batch in reader.read(partition)]
    assert sum(rows for rows, _ in sizes) == 300_010
    assert max(rows for rows, _ in sizes) <= BATCH_ROWS
    assert max(size for _, size in sizes) <= 4 * 1024 * 1024


PAGE = sections((DOCS / "reference/spark.md").read_text())
ASKED: Mapping[str, Callable[[dict[str, str]], object]] = {
    "Reading an archive": lambda given: ArchiveDataSource(given).schema(),
    "Reading a stream": read_options,
    "Writing to a stream": lambda given: write_options(given, schema_of("payload binary"), overwrite=False),
}


def told(section: str) -> set[str]:
    """The names in the first column of a section's table, without the arguments of Spark's functions."""
    cells = re.findall(r"^\| (`[^|]*) \|", PAGE[section], re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize("section", ASKED)
def test_page_has_the_options_that_are_known(section: str) -> None:
    with pytest.raises(Usage, match="unknown option") as raised:
        ASKED[section]({"nonsense": "1"})
    known = set(re.findall(r"\w+", str(raised.value).partition("Available: ")[2])) - {"path"}
    assert told(section) - {"path"} <= known
    assert known <= told(section) | told("Options of Pravega's own connector")
