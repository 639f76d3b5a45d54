"""Convert many checkpoints unattended: find them, decide what is left to do, run it, summarise."""
