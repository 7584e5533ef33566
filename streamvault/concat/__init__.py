"""Streams put together: parts of streams and archives behind a stream's end, in one transaction."""
