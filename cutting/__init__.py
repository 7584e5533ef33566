"""How a stream between two cuts becomes ranges: what is planned, where ranges begin, and the proof that they do."""
