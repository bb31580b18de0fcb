"""Running a plan: the only place that sees data."""
