"""What `bin/prove` runs: see docs/reliability.md."""
