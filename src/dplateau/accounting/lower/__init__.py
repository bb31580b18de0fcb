"""What no bound may go below: the epsilon of processes that are known exactly.

The two *neighbours* are data sets that differ in one record, under the plan's relation, and also
their runs; a *hit* is a step in which that record takes part; a *walk* is the one-dimensional run.
"""
