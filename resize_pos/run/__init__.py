"""The pipeline that carries one job out, and batches of jobs."""
