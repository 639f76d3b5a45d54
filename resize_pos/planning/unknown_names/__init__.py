"""Tables under names that no family knows: found by shape and values, or asked about."""
