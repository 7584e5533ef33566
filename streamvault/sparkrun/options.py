"""Options of verbs that run tasks."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from streamvault.common.options import CommandLine, Watched
from streamvault.sparkrun.masters import Master


def _valid(url: str) -> str:
    Master.parse(url)
    return url


class Distributed(Watched):
    """Options of a verb whose tasks run on Spark, or in threads of this process."""

    master: Annotated[
        str,
        AfterValidator(_valid),
        Field(
            description="Where tasks run: a Spark master, inline (threads), or auto (threads, and Spark where it pays)."
        ),
        CommandLine(metavar="URL"),
    ] = "auto"
