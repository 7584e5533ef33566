"""Measured speed and memory: ratios against a named limit or peer in one run, on real servers.

From the repository's root ``python -m benchmarks export_import``, ``memory`` and ``stages``; each prints its tables for
`docs/performance.md`. With ``--quick`` it shows that all runs, and not how fast. Nothing passes or fails by a time.
"""
