"""An attack on the accountant: exact laws, computed apart from everything that the product does."""
