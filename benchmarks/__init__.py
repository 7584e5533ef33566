"""Benchmarks of speed and memory: ratios to a named limit or peer within one run, on real servers.

Run ``python -m benchmarks chunks``, for example, from the repository's root; each benchmark prints its tables for
`docs/performance.md`. ``--quick`` only checks that a benchmark works. Nothing passes or fails by a time.
"""
