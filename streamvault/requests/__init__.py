"""Restores and deletions that are requested now and done later, through a durable queue.

`queue` defines the requests, `work` processes a queue, `show` requests a restore and lists waiting and failed requests.
"""
