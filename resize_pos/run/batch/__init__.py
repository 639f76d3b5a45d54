"""Many checkpoints, unattended: find them, decide what is left to do, carry it out, sum it up."""
