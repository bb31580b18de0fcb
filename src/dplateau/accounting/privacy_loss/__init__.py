"""Privacy loss distributions, and conversions between notions of privacy."""
