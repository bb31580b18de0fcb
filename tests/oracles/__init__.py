"""Independent computations that the tests compare the product with."""
