"""`python -m resize_pos`."""

from resize_pos.cli.app import main

main()
