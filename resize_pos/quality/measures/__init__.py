"""What the transfer did to one table, as numbers. `quality/verdict.py` judges them.

`quality/measures/catalogue.py` says what each number means and needs no numpy; the formulas are in
`docs/artifacts.md`. Grids are (copies, h, w, d) in float64, a 1-D table has h = 1.
"""
