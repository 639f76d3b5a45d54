"""Arrays in, arrays out: the resampling operators, and one module per kind of table."""
