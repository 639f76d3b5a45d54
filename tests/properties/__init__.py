"""Laws that hold for every layout, container and size."""
