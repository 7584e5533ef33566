"""A stream becomes generations of an archive, which are converted, merged, kept and expired."""
