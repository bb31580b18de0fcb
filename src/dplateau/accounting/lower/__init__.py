"""What no bound may go below."""
