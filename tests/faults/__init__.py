"""Faults of the system around a run: the target is whole or absent, and nothing hangs."""
