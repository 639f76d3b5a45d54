"""The geometry of a table: rows beside the grid, height and width, the pixels of a cell."""
