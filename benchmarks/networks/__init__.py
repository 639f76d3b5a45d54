"""Small networks that are trained here for their position tables."""
