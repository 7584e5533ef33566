"""Real servers for tests and benchmarks: fetched once into a cache outside the tree, started on free loopback ports.

By hand: ``python -m testkit.servers pravega minio`` from the repository's root. In tests: the fixtures of
``tests/conftest.py``.
"""
