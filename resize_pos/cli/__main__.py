"""`python -m resize_pos.cli`."""

from resize_pos.cli.app import main

main()
