"""The compiled engine: the same loop in machine code; `dplateau.training.engine` imports it."""
