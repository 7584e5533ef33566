"""By this package Spark finds the format ``pravega``, without `streamvault.spark.register`."""

from streamvault.spark.pravega_source import PravegaDataSource as DefaultSource

__all__ = ["DefaultSource"]
