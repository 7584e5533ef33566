"""Copy a stream event by event into a stream with other segments, in batches that take effect once."""
