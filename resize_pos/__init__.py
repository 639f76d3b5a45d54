"""Transfer a model checkpoint to another input resolution."""
