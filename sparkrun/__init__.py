"""Spark, as one thing: run this function over these specifications. The only package that imports it."""
