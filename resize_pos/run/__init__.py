"""The pipeline that runs one job, and batches of jobs."""
