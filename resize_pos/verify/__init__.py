"""Check outputs against their plan, their source, a size or a model."""
