"""What interpolation did to a table: numbers, the verdict on them, and pictures."""
