"""One family of theorems a file."""
