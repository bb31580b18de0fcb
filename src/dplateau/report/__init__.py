"""The page for whoever signs, and all its figures."""
