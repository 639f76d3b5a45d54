"""Zip archives, read and written record by record."""
