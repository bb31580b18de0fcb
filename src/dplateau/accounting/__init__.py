"""What a plan costs: pure mathematics that knows plans and never sees data."""
