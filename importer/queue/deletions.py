"""Deletions that wait in a queue: asked for by a rotation, done by whoever works the queue off."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from common.errors import Usage
from importer.queue.model import DeleteRequest, NotARequest, Request, decode_request, encode
from importer.queue.streams import open_queue
from manifests.archive import Archive
from manifests.deleting import delete_expired
from objectstore.uri import RootAddress
from streamstore.fifo import Producer
from streamstore.fifo.backlog import outstanding_entries
from streamstore.model import StreamName

__all__ = ["delete", "request_deletions"]


def request_deletions(queue: str, root: str, stream: StreamName, generations: Iterable[int]) -> tuple[int, ...]:
    """Ask for the data of expired generations to be deleted, but for those whose deletion waits already.

    Args:
        queue: the queue's URI; it is made if need be.
        root: the archive's root.
        stream: which archive.
        generations: numbers; each and all before it have expired.

    Returns:
        Those that were asked for now.
    """
    wanted = [DeleteRequest(root=root, archive=str(stream), generation=number) for number in generations]
    if not wanted:
        return ()
    with open_queue(queue) as place:
        waiting = place.waiting(make=True)
        found = (_request(entry.content) for entry in outstanding_entries(waiting))
        there = {request for request in found if request in wanted}
        producer = Producer(waiting)
        new = [request for request in wanted if request not in there]
        for request in new:
            producer.put(encode(request))
    return tuple(request.generation for request in new)


def delete(request: DeleteRequest) -> dict[str, Any]:
    """Delete what has expired up to a generation; what is gone already is no error.

    Raises:
        Usage: the generation has not expired.
    """
    root, stream = RootAddress.parse(request.root).resolve(), StreamName.parse(request.archive)
    archive = Archive(root.open(), stream)
    listing = archive.listing()
    if listing.dropped < request.generation:
        raise Usage("this generation has not expired", where=f"{archive.uri}, {request.generation}")
    if listing.decision.swept >= request.generation:
        return {"unchanged": True, "objects_deleted": 0, "requests": 0}
    done = delete_expired(root, stream)
    told: dict[str, Any] = {"unchanged": False, "objects_deleted": done.objects, "requests": done.requests}
    if done.lock is not None:
        # a rotation asks for it again
        told["stopped"] = f"{done.lock.reason} of {done.lock.key}"
    return told


def _request(content: bytes) -> Request | None:
    try:
        request = decode_request(content)
    except NotARequest:
        return None
    return request if isinstance(request, DeleteRequest) else None
