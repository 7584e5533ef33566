"""The *request-restore* command."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pydantic import ValidationError

from common.errors import Usage
from common.times import parse_moment
from importer.plan import KeptRetention, Offsets
from importer.queue.model import RestoreRequest, encode
from importer.queue.reports import RequestReport
from importer.queue.streams import check_queue, open_queue
from layouts.windows import WINDOW, check_window
from objectstore.uri import RootAddress
from streamstore.fifo import Producer
from streamstore.model import StreamCut, StreamName
from streamstore.uri import parse_stream

__all__ = ["request_restore"]

Cut = str | Mapping[str, int]


def request_restore(
    archive: str,
    stream: str,
    *,
    queue: str,
    from_cut: Cut | None = None,
    to_cut: Cut | None = None,
    generation: int | None = None,
    at: datetime | str | None = None,
    offsets: Offsets = "keep",
    filler_limit: int = 1024**3,
    retention: KeptRetention = "keep",
    window: int = WINDOW,
    read_back: bool = False,
    dry_run: bool = False,
) -> RequestReport:
    """Request a restore, to be done by a worker of the queue.

    Only the arguments are checked now; whether the archive exists is checked by the worker.

    Args:
        archive: as for `import_stream`, and as the worker sees it; so are the other arguments.
        stream: the stream to make.
        queue: the queue's URI, in the form of a stream's; it is made if need be.
        from_cut: as for `import_stream`, and so on.
        to_cut: likewise.
        generation: likewise.
        at: likewise.
        offsets: as for `import_stream`.
        filler_limit: likewise (bytes).
        retention: likewise.
        window: likewise (bytes).
        read_back: likewise.
        dry_run: only check the arguments.

    Raises:
        Usage: an argument is not valid.
        NotAQueue: ``queue`` is another stream (exit code 4).
        QueueFull: the queue has no room.
    """
    if at is not None and generation is not None:
        raise Usage("--at and --generation exclude each other", todo="Give only one of them.")
    _, scope, name = RootAddress.parse(archive).split()
    StreamName(scope, name)
    parse_stream(stream)
    check_window(window)
    try:
        request = RestoreRequest(
            archive=archive,
            stream=stream,
            from_cut=None if from_cut is None else StreamCut.from_json(from_cut).to_json(),
            to_cut=None if to_cut is None else StreamCut.from_json(to_cut).to_json(),
            generation=generation,
            at=None if at is None else parse_moment(at, "at"),
            offsets=offsets,
            filler_limit=filler_limit,
            retention=retention,
            window=window,
            read_back=read_back,
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise Usage(f"{first['loc'][0]}: {first['msg']}", where=repr(first["input"])) from None
    check_queue(queue, make=False)
    stored = request.model_dump(mode="json", exclude_none=True)
    if dry_run:
        return RequestReport(queue=queue, request=stored, text=str(request), dry_run=True)
    with open_queue(queue) as place:
        waiting = place.waiting(make=True)
        name_of_it = Producer(waiting).put(encode(request))
        return RequestReport(
            id=str(name_of_it),
            queue=queue,
            request=stored,
            text=str(request),
            outstanding_bytes=waiting.outstanding(),
        )
