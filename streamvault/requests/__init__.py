"""Restores and deletions that are requested now and done later, through a durable queue.

`model` defines the requests, `request` and `deletions` enqueue them, `handlers` carry out each kind, `work` processes a
queue, `show` lists waiting and failed requests.
"""
