"""Tools that tests and benchmarks run on: servers, the explorer of schedules, the proofs, builders of scenes."""
