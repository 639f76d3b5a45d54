"""Ways to make a table of another size: proper kernels, and mistakes that people make."""
