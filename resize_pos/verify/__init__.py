"""Outputs held against their plan, their source, a size or a model."""
