"""Pages to look at: charts of archives and streams."""
