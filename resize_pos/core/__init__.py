"""What every other package builds on: errors, geometry, axis patterns, requests."""
