"""Hold every tensor that is not in the plan against the old geometry: what must not stay."""
