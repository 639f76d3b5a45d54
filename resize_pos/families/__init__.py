"""Every known layout, as data with provenance, and the tables that are found by it."""
