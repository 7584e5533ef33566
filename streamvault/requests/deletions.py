"""Queued deletions: requested by a rotation, done by a worker of the queue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from streamvault.common.errors import Conflict, Usage
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.deleting import delete_expired
from streamvault.manifests.archive.expiry_rule import ExpiryRule
from streamvault.objectstore.uri import RootAddress
from streamvault.requests.model import DeleteRequest, NotARequest, Request, decode_request, encode
from streamvault.requests.streams import open_queue
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.services.fifo.backlog import outstanding_entries
from streamvault.streamstore.services.fifo.producer import Producer


def request_deletions(
    queue: str, root: str, stream: StreamName, generations: Iterable[int], rule: ExpiryRule
) -> tuple[int, ...]:
    """Request the deletion of expired generations' data, except for requests that wait already.

    Args:
        queue: the queue's URI; created if missing.
        root: the archive's root.
        stream: the archived stream.
        generations: numbers; each of them and all before have expired.
        rule: which of them the worker may delete.

    Returns:
        The newly requested ones.
    """
    requests = [
        DeleteRequest(root=root, archive=str(stream), generation=number, **asdict(rule)) for number in generations
    ]
    if not requests:
        return ()
    with open_queue(queue) as place:
        waiting = place.waiting(create=True)
        found = (_request(entry.content) for entry in outstanding_entries(waiting))
        there = {request for request in found if request in requests}
        producer = Producer(waiting)
        new = [request for request in requests if request not in there]
        for request in new:
            producer.put(encode(request))
    return tuple(request.generation for request in new)


def delete(request: DeleteRequest) -> dict[str, Any]:
    """Delete the data of expired generations up to the requested one; data already deleted is no error.

    Raises:
        Usage: the generation has not expired.
        Conflict: the request's rule would not have let it expire.
    """
    root, stream = RootAddress.parse(request.root).resolve(), StreamName.parse(request.archive)
    archive = Archive(root, stream)
    listing = archive.listing()
    if listing.dropped < request.generation:
        raise Usage("this generation has not expired", where=f"{archive.uri}, {request.generation}")
    if listing.decision.swept >= request.generation:
        return {"unchanged": True, "objects_deleted": 0, "requests": 0}
    done = delete_expired(root, stream, ExpiryRule(request.keep, request.keep_for, request.until))
    if done.kept:
        raise Conflict(done.kept, where=archive.uri)
    report: dict[str, Any] = {"unchanged": False, "objects_deleted": done.objects, "requests": done.requests}
    if done.lock is not None:
        # a later rotation requests it again
        report["stopped"] = f"{done.lock.reason} of {done.lock.key}"
    return report


def _request(content: bytes) -> Request | None:
    try:
        request = decode_request(content)
    except NotARequest:
        return None
    return request if isinstance(request, DeleteRequest) else None
