# What type checkers read of the public functions. `python -m bin.pages` writes it.
import streamvault
from streamvault.manager import manager
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from os import PathLike
from pathlib import Path
from streamvault.common.progress import Progress
from streamvault.concat.reports import CopyReport, StitchReport
from streamvault.demo.report import DemoReport
from streamvault.exporter.reports import CompactReport, ConvertReport, ExportReport, FollowReport, PlanReport, RotateReport
from streamvault.importer.reports import ImportReport
from streamvault.inspect.reports import PageReport, SetupReport, StatusReport
from streamvault.lake.read import ArrowEvents
from streamvault.lake.reports import HandoffReport
from streamvault.manager.ephemeral import ephemeral_stream as ephemeral_stream
from streamvault.manager.manager import list_streams as list_streams
from streamvault.manager.reports import SweepReport
from streamvault.manifests.verbs.reports import CheckReport, DeleteReport, HoldReport, WarmReport
from streamvault.manifests.verbs.show import list_archives as list_archives, show_archive as show_archive, show_timeline as show_timeline
from streamvault.replication.reports import MoveReport, PromoteReport, ReplicateReport
from streamvault.replication.translate import translate as translate
from streamvault.requests.reports import FinishedRequest, QueueReport, RequestReport, WorkReport
from streamvault.requests.show import drop_failed as drop_failed, retry_failed as retry_failed, show_queue as show_queue
from streamvault.serving.reports import RunningServer, ServeReport
from typing import Literal

__version__: str

class StreamManager(manager.StreamManager):
    append_streams = staticmethod(streamvault.append_streams)
    check_archive = staticmethod(streamvault.check_archive)
    check_setup = staticmethod(streamvault.check_setup)
    compact_archive = staticmethod(streamvault.compact_archive)
    convert_archive = staticmethod(streamvault.convert_archive)
    copy_stream = staticmethod(streamvault.copy_stream)
    delete_archive = staticmethod(streamvault.delete_archive)
    drop_failed = staticmethod(streamvault.drop_failed)
    export_stream = staticmethod(streamvault.export_stream)
    follow_stream = staticmethod(streamvault.follow_stream)
    get_event = staticmethod(streamvault.get_event)
    hold_archive = staticmethod(streamvault.hold_archive)
    import_stream = staticmethod(streamvault.import_stream)
    join_streams = staticmethod(streamvault.join_streams)
    list_archives = staticmethod(streamvault.list_archives)
    list_streams = staticmethod(streamvault.list_streams)
    move_stream = staticmethod(streamvault.move_stream)
    plan_archive = staticmethod(streamvault.plan_archive)
    promote_replica = staticmethod(streamvault.promote_replica)
    read_archive = staticmethod(streamvault.read_archive)
    release_archive = staticmethod(streamvault.release_archive)
    replicate_stream = staticmethod(streamvault.replicate_stream)
    request_restore = staticmethod(streamvault.request_restore)
    retry_failed = staticmethod(streamvault.retry_failed)
    rotate_stream = staticmethod(streamvault.rotate_stream)
    run_demo = staticmethod(streamvault.run_demo)
    serve_archives = staticmethod(streamvault.serve_archives)
    show_archive = staticmethod(streamvault.show_archive)
    show_queue = staticmethod(streamvault.show_queue)
    show_status = staticmethod(streamvault.show_status)
    show_timeline = staticmethod(streamvault.show_timeline)
    skip_foreign = staticmethod(streamvault.skip_foreign)
    sweep_scope = staticmethod(streamvault.sweep_scope)
    table_ddl = staticmethod(streamvault.table_ddl)
    translate = staticmethod(streamvault.translate)
    warm_archive = staticmethod(streamvault.warm_archive)
    work_queue = staticmethod(streamvault.work_queue)
    write_report = staticmethod(streamvault.write_report)
    write_table = staticmethod(streamvault.write_table)

def append_streams(
    sources: Sequence[str],
    into: str,
    *,
    own_segments: bool = ...,
    to_cut: str | Mapping[str, int] | PathLike[str] | None = ...,
    distinct: bool = ...,
    window: int | str = ...,
    master: str = ...,
    dry_run: bool = ...,
    progress: Progress | None = ...,
) -> StitchReport: ...

def check_archive(
    archive: str | PathLike[str],
    *,
    read_data: bool = ...,
    subset: float | str | None = ...,
    stored_checksums: bool = ...,
    seed: int | None = ...,
    generation: int | None = ...,
    fingerprints: Iterable[str] = ...,
    repair: bool = ...,
    master: str = ...,
    progress: Progress | None = ...,
) -> CheckReport: ...

def check_setup(
    stream: str,
    root: str | PathLike[str] | None = ...,
    *,
    time_limit: float | str | timedelta = ...,
) -> SetupReport: ...

def compact_archive(
    archive: str | PathLike[str],
    *,
    target: int | str = ...,
    at_least: int = ...,
    grace: float | str | timedelta = ...,
    storage_class: str = ...,
    window: int | str = ...,
    master: str = ...,
    dry_run: bool = ...,
    progress: Progress | None = ...,
) -> CompactReport: ...

def convert_archive(
    archive: str | PathLike[str],
    root: str | PathLike[str],
    *,
    layout: Literal['events', 'chunks'],
    compress: Literal['', 'zstd'] | None = ...,
    window: int | str = ...,
    restart: bool = ...,
    master: str = ...,
    dry_run: bool = ...,
    progress: Progress | None = ...,
) -> ConvertReport: ...

def copy_stream(
    source: str | PathLike[str],
    stream: str,
    *,
    ranges: Sequence[tuple[str | Mapping[str, int], str | Mapping[str, int]]] = ...,
    reader_groups: bool = ...,
    method: Literal['bytes', 'events'] = ...,
    segments: int | None = ...,
    key: str = ...,
    from_cut: str | Mapping[str, int] | PathLike[str] | None = ...,
    to_cut: str | Mapping[str, int] | PathLike[str] | None = ...,
    read_back: bool = ...,
    offsets: Literal['keep', 'shift'] = ...,
    filler_limit: int | str = ...,
    numbers: Literal['keep', 'map'] = ...,
    window: int | str = ...,
    master: str = ...,
    dry_run: bool = ...,
    progress: Progress | None = ...,
) -> CopyReport: ...

def delete_archive(
    archive: str | PathLike[str],
    *,
    yes: bool = ...,
    unfinished: bool = ...,
) -> DeleteReport: ...

def export_stream(
    stream: str,
    root: str | PathLike[str],
    *,
    from_cut: str | Mapping[str, int] | PathLike[str] | None = ...,
    to_cut: str | Mapping[str, int] | PathLike[str] | None = ...,
    restart: bool = ...,
    content: Literal['events', 'bytes'] | None = ...,
    layout: Literal['events', 'chunks'] | None = ...,
    compress: Literal['', 'zstd'] | None = ...,
    range_size: int | str | None = ...,
    window: int | str = ...,
    largest_event: int | str = ...,
    storage_class: str = ...,
    same_stream: bool = ...,
    line: str = ...,
    reader_groups: bool = ...,
    schemas: str | None = ...,
    schema_group: str | None = ...,
    master: str = ...,
    dry_run: bool = ...,
    progress: Progress | None = ...,
) -> ExportReport: ...

def follow_stream(
    stream: str,
    root: str | PathLike[str],
    *,
    rotate: bool = ...,
    keep: int | None = ...,
    keep_for: float | str | timedelta | None = ...,
    truncate_source: bool = ...,
    every: float | str | timedelta = ...,
    target: int | str = ...,
    grace: float | str | timedelta = ...,
    idle: float | str | timedelta | None = ...,
    lasting: float | str | timedelta | None = ...,
    retry_for: float | str | timedelta = ...,
    content: Literal['events', 'bytes'] | None = ...,
    layout: Literal['events', 'chunks'] | None = ...,
    compress: Literal['', 'zstd'] | None = ...,
    range_size: int | str | None = ...,
    window: int | str = ...,
    largest_event: int | str = ...,
    storage_class: str = ...,
    same_stream: bool = ...,
    line: str = ...,
    reader_groups: bool = ...,
    schemas: str | None = ...,
    schema_group: str | None = ...,
    master: str = ...,
    progress: Progress | None = ...,
) -> FollowReport: ...

def get_event(
    archive: str | PathLike[str],
    pointer: str,
    *,
    unverified: bool = ...,
) -> bytes: ...

def hold_archive(
    archive: str | PathLike[str],
    name: str,
    *,
    generation: int | None = ...,
    why: str = ...,
    dry_run: bool = ...,
) -> HoldReport: ...

def import_stream(
    archive: str | PathLike[str],
    stream: str,
    *,
    fingerprints: Iterable[str] = ...,
    layout: Literal['table'] | None = ...,
    table: str | None = ...,
    reader_groups: bool = ...,
    schemas: str | None = ...,
    schema_group: str | None = ...,
    wait_for_warm: bool = ...,
    again: bool = ...,
    skip_damaged: bool = ...,
    generation: int | None = ...,
    at: str | datetime | None = ...,
    retention: Literal['keep', 'off'] = ...,
    from_cut: str | Mapping[str, int] | PathLike[str] | None = ...,
    to_cut: str | Mapping[str, int] | PathLike[str] | None = ...,
    read_back: bool = ...,
    offsets: Literal['keep', 'shift'] = ...,
    filler_limit: int | str = ...,
    numbers: Literal['keep', 'map'] = ...,
    window: int | str = ...,
    master: str = ...,
    dry_run: bool = ...,
    progress: Progress | None = ...,
) -> ImportReport: ...

def join_streams(
    sources: Sequence[str],
    into: str,
    *,
    distinct: bool = ...,
    window: int | str = ...,
    master: str = ...,
    dry_run: bool = ...,
    progress: Progress | None = ...,
) -> StitchReport: ...

def move_stream(
    source: str | PathLike[str],
    stream: str,
    *,
    numbers: Literal['keep', 'map'] = ...,
    no_tombstone: bool = ...,
    retention: Literal['keep', 'off'] = ...,
    reader_groups: bool = ...,
    offsets: Literal['keep', 'shift'] = ...,
    filler_limit: int | str = ...,
    window: int | str = ...,
    master: str = ...,
    dry_run: bool = ...,
    progress: Progress | None = ...,
) -> MoveReport: ...

def plan_archive(
    stream: str | None = ...,
    *,
    segments: int | None = ...,
    bytes: int | str | None = ...,
    events: int | None = ...,
    content: Literal['events', 'bytes'] | None = ...,
    layout: Literal['events', 'chunks'] | None = ...,
    compress: Literal['', 'zstd'] | None = ...,
    range_size: int | str | None = ...,
    exports: int = ...,
    cores: int = ...,
    network: float = ...,
    prices: str | PathLike[str] = ...,
) -> PlanReport: ...

def promote_replica(
    stream: str,
    *,
    seal_source: bool = ...,
    retention: Literal['keep', 'off'] = ...,
    reader_groups: bool = ...,
    window: int | str = ...,
    master: str = ...,
    dry_run: bool = ...,
    progress: Progress | None = ...,
) -> PromoteReport: ...

def read_archive(
    archive: str | PathLike[str],
    *,
    columns: Sequence[str] | None = ...,
    window: int | str = ...,
    from_cut: str | Mapping[str, int] | PathLike[str] | None = ...,
    to_cut: str | Mapping[str, int] | PathLike[str] | None = ...,
    generation: int | None = ...,
    unverified: bool = ...,
    decode: Literal['registry'] | None = ...,
    limit: int | None = ...,
    registry: str | None = ...,
    group: str | None = ...,
) -> ArrowEvents: ...

def release_archive(
    archive: str | PathLike[str],
    name: str,
    *,
    generation: int | None = ...,
    dry_run: bool = ...,
) -> HoldReport: ...

def replicate_stream(
    source: str | PathLike[str],
    stream: str,
    *,
    numbers: Literal['keep', 'map'] = ...,
    follow: bool = ...,
    every: float | str | timedelta | None = ...,
    keep_head: bool = ...,
    reader_groups: bool = ...,
    idle: float | str | timedelta | None = ...,
    lasting: float | str | timedelta | None = ...,
    retry_for: float | str | timedelta = ...,
    offsets: Literal['keep', 'shift'] = ...,
    filler_limit: int | str = ...,
    window: int | str = ...,
    master: str = ...,
    dry_run: bool = ...,
    progress: Progress | None = ...,
) -> ReplicateReport: ...

def request_restore(
    archive: str | PathLike[str],
    stream: str,
    *,
    dry_run: bool = ...,
    queue: str,
    generation: int | None = ...,
    at: str | datetime | None = ...,
    retention: Literal['keep', 'off'] = ...,
    from_cut: str | Mapping[str, int] | PathLike[str] | None = ...,
    to_cut: str | Mapping[str, int] | PathLike[str] | None = ...,
    read_back: bool = ...,
    offsets: Literal['keep', 'shift'] = ...,
    filler_limit: int | str = ...,
    numbers: Literal['keep', 'map'] = ...,
    window: int | str = ...,
) -> RequestReport: ...

def rotate_stream(
    stream: str,
    root: str | PathLike[str],
    *,
    keep: int | None = ...,
    keep_for: float | str | timedelta | None = ...,
    until: str | datetime | None = ...,
    truncate_source: bool = ...,
    hold: str = ...,
    queue: str = ...,
    restart: bool = ...,
    content: Literal['events', 'bytes'] | None = ...,
    layout: Literal['events', 'chunks'] | None = ...,
    compress: Literal['', 'zstd'] | None = ...,
    range_size: int | str | None = ...,
    window: int | str = ...,
    largest_event: int | str = ...,
    storage_class: str = ...,
    same_stream: bool = ...,
    line: str = ...,
    reader_groups: bool = ...,
    schemas: str | None = ...,
    schema_group: str | None = ...,
    master: str = ...,
    dry_run: bool = ...,
    progress: Progress | None = ...,
) -> RotateReport: ...

def run_demo(
    *,
    keep: Path | str | None = ...,
    report: Path | str | None = ...,
    events: int = ...,
    master: str = ...,
    progress: Progress | None = ...,
) -> DemoReport: ...

def serve_archives(
    sources: Sequence[str],
    *,
    ready: Callable[[ServeReport], None] = ...,
    answering: Callable[[RunningServer], AbstractContextManager[None]] = ...,
    over: str | None = ...,
    state: str | PathLike[str] | None = ...,
    listen: str = ...,
    advertise: str = ...,
    cache: int | str = ...,
    every: float | str | timedelta = ...,
    generation: int | None = ...,
    verify: Literal['blocks', 'sha256'] = ...,
    lasting: float | str | timedelta | None = ...,
    tls_cert: Path | str | None = ...,
    tls_key: Path | str | None = ...,
    login: Path | str | None = ...,
    token_lifetime: float | str | timedelta = ...,
) -> ServeReport: ...

def show_status(
    place: str | PathLike[str] | None = ...,
    *,
    root: str | PathLike[str] | None = ...,
    config_file: Path | str | None = ...,
    metrics: Path | str | None = ...,
) -> StatusReport: ...

def skip_foreign(
    queue: str,
    offset: int,
    *,
    failed: bool = ...,
) -> QueueReport: ...

def sweep_scope(
    scope: str,
    *,
    older_than: float | str | timedelta = ...,
    dry_run: bool = ...,
) -> SweepReport: ...

def table_ddl(
    source: str | PathLike[str],
    engine: Literal['athena', 'trino', 'hive', 'spark', 'duckdb'],
    *,
    table: str | None = ...,
    format: Literal['iceberg', 'parquet'] | None = ...,
    decode: Literal['none', 'json', 'csv', 'avro', 'protobuf', 'registry'] | None = ...,
    framing: Literal['none', 'pravega', 'confluent', 'avro'] | None = ...,
    schema: str | PathLike[str] | None = ...,
    message: str | None = ...,
    event_time: str | None = ...,
    raw: bool = ...,
    root: str | PathLike[str] | None = ...,
) -> str: ...

def warm_archive(
    archive: str | PathLike[str],
    *,
    generation: int | None = ...,
    days: int = ...,
    tier: Literal['Bulk', 'Standard', 'Expedited'] = ...,
    wait: bool = ...,
    poll: float | str | timedelta = ...,
    dry_run: bool = ...,
    progress: Progress | None = ...,
) -> WarmReport: ...

def work_queue(
    queue: str,
    *,
    finished: Callable[[FinishedRequest], None] = ...,
    idle: float | str | timedelta | None = ...,
    lasting: float | str | timedelta | None = ...,
    wait: float | str | timedelta = ...,
    tries: int | None = ...,
    master: str = ...,
    progress: Progress | None = ...,
) -> WorkReport: ...

def write_report(
    place: str | PathLike[str],
    *,
    output: Path | str | None = ...,
    svg: Path | str | None = ...,
    stream: str = ...,
) -> PageReport: ...

def write_table(
    source: str | PathLike[str],
    *,
    catalog: str | None = ...,
    projection: bool = ...,
    columns: Literal['add', 'keep'] | None = ...,
    target_size: int | str | None = ...,
    window: int | str = ...,
    largest_event: int | str = ...,
    table: str | None = ...,
    format: Literal['iceberg', 'parquet'] | None = ...,
    decode: Literal['none', 'json', 'csv', 'avro', 'protobuf', 'registry'] | None = ...,
    framing: Literal['none', 'pravega', 'confluent', 'avro'] | None = ...,
    schema: str | PathLike[str] | None = ...,
    message: str | None = ...,
    event_time: str | None = ...,
    raw: bool = ...,
    root: str | PathLike[str] | None = ...,
    registry: str | None = ...,
    group: str | None = ...,
    master: str = ...,
    dry_run: bool = ...,
    progress: Progress | None = ...,
) -> HandoffReport: ...
