"""Runs a function over many specifications, on Spark or in threads. The only package that starts Spark."""
