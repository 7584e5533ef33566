"""The *request-restore* command."""

from __future__ import annotations

from streamvault.common.verb import verb
from streamvault.importer.options import RestoreOptions
from streamvault.objectstore.uri import RootAddress
from streamvault.requests.model import RestoreRequest, encode
from streamvault.requests.options import RequestOptions
from streamvault.requests.reports import RequestReport
from streamvault.requests.streams import check_queue, open_queue
from streamvault.streamstore.model import StreamCut, StreamName
from streamvault.streamstore.services.fifo.producer import Producer
from streamvault.streamstore.uri import parse_stream


@verb(RequestOptions)
def request_restore(archive: str, stream: str, options: RequestOptions) -> RequestReport:
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
    _, scope, name = RootAddress.parse_archive(archive)
    StreamName(scope, name)
    parse_stream(stream)
    cuts = {
        name: StreamCut.from_json(cut, ends=True).to_json()
        for name, cut in (("from_cut", options.from_cut), ("to_cut", options.to_cut))
        if cut is not None
    }
    kept = {name: getattr(options, name) for name in RestoreOptions.keyword_fields()}
    request = RestoreRequest(archive=archive, stream=stream, **{**kept, **cuts})
    check_queue(options.queue, create=False)
    stored = request.model_dump(mode="json", exclude_none=True)
    if options.dry_run:
        return RequestReport(queue=options.queue, request=stored, text=str(request), dry_run=True)
    with open_queue(options.queue) as place:
        waiting = place.waiting(create=True)
        name_of_it = Producer(waiting).put(encode(request))
        return RequestReport(
            id=str(name_of_it),
            queue=options.queue,
            request=stored,
            text=str(request),
            outstanding_bytes=waiting.outstanding(),
        )
