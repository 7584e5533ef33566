"""The *request-restore* command."""

from __future__ import annotations

from datetime import datetime

from streamvault.common.times import parse_moment
from streamvault.importer.options import FILLER_LIMIT, KeptRetention, Numbers, Offsets, RestoreOptions
from streamvault.layouts.windows import WINDOW
from streamvault.objectstore.uri import RootAddress
from streamvault.requests.model import RestoreRequest, encode
from streamvault.requests.reports import RequestReport
from streamvault.requests.streams import check_queue, open_queue
from streamvault.streamstore.arithmetic.cut_option import Cut
from streamvault.streamstore.model import StreamCut, StreamName
from streamvault.streamstore.services.fifo.producer import Producer
from streamvault.streamstore.uri import parse_stream


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
    filler_limit: int = FILLER_LIMIT,
    numbers: Numbers = "keep",
    retention: KeptRetention = "keep",
    window: int = WINDOW,
    read_back: bool = False,
    dry_run: bool = False,
) -> RequestReport:
    """Put a request for a restore in a queue; a worker of the queue processes it.

    Only the arguments are checked now; the worker checks whether the archive exists.

    Args:
        archive: as for `import_stream`; this and the other arguments must be valid on the worker.
        stream: the stream to create.
        queue: the queue's URI, in the form of a stream's; the queue is created if it does not exist.
        from_cut: as for `import_stream`.
        to_cut: likewise.
        generation: likewise.
        at: likewise.
        offsets: as for `import_stream`.
        filler_limit: likewise (bytes).
        numbers: likewise.
        retention: likewise.
        window: likewise (bytes).
        read_back: likewise.
        dry_run: only check the arguments.

    Raises:
        Usage: an argument is not valid.
        NotAQueue: ``queue`` is another stream (exit code 4).
        QueueFull: the queue is full.
    """
    options = RestoreOptions(
        from_cut=from_cut,
        to_cut=to_cut,
        generation=generation,
        at=None if at is None else parse_moment(at, "--at"),
        offsets=offsets,
        filler_limit=filler_limit,
        numbers=numbers,
        retention=retention,
        window=window,
        read_back=read_back,
    )
    _, scope, name = RootAddress.parse(archive).split()
    StreamName(scope, name)
    parse_stream(stream)
    cuts = {
        name: StreamCut.from_json(cut, ends=True).to_json()
        for name, cut in (("from_cut", options.from_cut), ("to_cut", options.to_cut))
        if cut is not None
    }
    request = RestoreRequest(archive=archive, stream=stream, **{**options.keywords(), **cuts})
    check_queue(queue, create=False)
    stored = request.model_dump(mode="json", exclude_none=True)
    if dry_run:
        return RequestReport(queue=queue, request=stored, text=str(request), dry_run=True)
    with open_queue(queue) as place:
        waiting = place.waiting(create=True)
        name_of_it = Producer(waiting).put(encode(request))
        return RequestReport(
            id=str(name_of_it),
            queue=queue,
            request=stored,
            text=str(request),
            outstanding_bytes=waiting.outstanding(),
        )
