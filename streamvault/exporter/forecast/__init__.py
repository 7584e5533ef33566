"""The *plan* command: what an archive would cost, take and need, computed."""
