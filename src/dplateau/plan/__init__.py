"""The plan and its parts: what will be run, and every constant that follows."""
