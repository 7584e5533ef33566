"""By this package Spark finds the format ``streamvault``, without `streamvault.spark.register`."""

from streamvault.spark.archive_source import ArchiveDataSource as DefaultSource

__all__ = ["DefaultSource"]
