"""Object store in a local folder."""
