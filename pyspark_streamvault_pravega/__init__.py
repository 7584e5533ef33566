"""By this package Spark finds the format ``pravega``, without `streamvault.spark.register`."""

from streamvault.spark.sources import source

DefaultSource = source("pravega")

__all__ = ["DefaultSource"]
