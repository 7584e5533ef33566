"""Restores and deletions that are asked for now and done later, from a durable queue.

`model` has the requests as they lie in the queue, `asking` puts them in, `handlers` says what does each kind, `working`
works a queue off, `looking` shows what waits and what has failed.
"""
