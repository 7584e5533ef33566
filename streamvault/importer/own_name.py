"""A stream that is restored under the archived stream's own name and address, told from the archived stream itself."""

from __future__ import annotations

from dataclasses import replace

from streamvault.importer.plan import RestorePlan
from streamvault.importer.run import Restored
from streamvault.importer.target import TargetTaken
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import MOST_TAGS, RESTORED


def tagged(plan: RestorePlan, *, is_own_name: bool) -> RestorePlan:
    """Return the plan with a tag that tells the restored stream from the archived one of the same name and address.

    In a cluster that was rebuilt, nothing else may differ.
    """
    tags = tuple(tag for tag in plan.configuration.tags if not tag.startswith(RESTORED))
    if is_own_name and len(tags) < MOST_TAGS:
        tags += (RESTORED + plan.import_id,)
    return replace(plan, configuration=replace(plan.configuration, tags=tags))


def check_not_source(target: OpenStream, found: Restored, plan: RestorePlan) -> None:
    """Reject a stream that looks restored, and is the archived one itself.

    A stream that was restored under its own name has a tag, or other segment numbers.

    Raises:
        TargetTaken: it is the archived stream.
    """
    is_renumbered = any(old != new for old, new in found.segments.items())
    if not is_renumbered and RESTORED + plan.import_id not in target.describe().configuration.tags:
        raise TargetTaken(
            "this is the archived stream itself, and nothing was restored into it",
            where=target.uri,
            todo="Give the restored stream another name.",
        )
