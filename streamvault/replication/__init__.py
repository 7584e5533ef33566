"""Streams kept like others: copies, replicas and their cut-over, moves."""
