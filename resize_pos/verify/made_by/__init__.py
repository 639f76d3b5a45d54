"""How a table was made of its source: by which method, by which mistake, or by training."""
