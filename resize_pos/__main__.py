"""`python -m resize_pos`."""

from resize_pos.cli import main

main()
