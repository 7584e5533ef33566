"""Options of *export* and *convert*."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from common.options import CommandLine, Options
from layouts.windows import WINDOW
from manifests.entries import Layout
from manifests.options import ArchivingOptions, CompressOption, Window
from streamstore.cut_option import FromCut, ToCut

__all__ = ["ConvertOptions", "ExportOptions"]


class ExportOptions(ArchivingOptions):
    """Options of *export*."""

    from_cut: FromCut = None
    to_cut: ToCut = None


class ConvertOptions(Options):
    """Options of *convert*."""

    layout: Annotated[Layout, Field(description="Layout of the copy."), CommandLine(environment=False)]
    compress: CompressOption = ""
    window: Window = WINDOW
