"""The verbs that need nothing but an archive."""
