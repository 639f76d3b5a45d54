"""Checkpoints in stores (S3, Google, Azure, web servers): read by range, written in parts."""
