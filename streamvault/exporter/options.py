"""Options of *export* and *convert*."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from streamvault.common.options import CommandLine, Rehearsed
from streamvault.layouts.layout import LayoutName
from streamvault.layouts.windows import WINDOW
from streamvault.manifests.options import ArchivingOptions, CompressOption, Restart, Window
from streamvault.sparkrun.options import Distributed
from streamvault.streamstore.arithmetic.cut_option import FromCut, ToCut


class ExportOptions(ArchivingOptions, Distributed, Rehearsed):
    """Options of *export*."""

    scoped: ClassVar = {"stream": "stream"}

    from_cut: FromCut = None
    to_cut: ToCut = None
    restart: Restart = False


class ConvertOptions(Distributed, Rehearsed):
    """Options of *convert*."""

    layout: Annotated[LayoutName, Field(description="Layout of the copy."), CommandLine(environment=False)]
    compress: CompressOption = None
    window: Window = WINDOW
    restart: Restart = False
