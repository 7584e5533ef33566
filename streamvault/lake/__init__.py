"""Tables for query engines: Parquet files written by tasks, and the catalogs that list them."""
