"""Certified models in the formats of others: a registry, dp_accounting, scikit-learn, ONNX."""
