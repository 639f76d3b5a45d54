"""Config files: what they state about the resolution, and how a conversion edits them."""
