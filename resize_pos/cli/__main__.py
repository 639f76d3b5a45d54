"""`python -m resize_pos.cli`."""

from resize_pos.cli import main

main()
