"""By this package Spark finds the format ``streamvault``, without `streamvault.spark.register`."""

from streamvault.spark.sources import source

DefaultSource = source("streamvault")

__all__ = ["DefaultSource"]
