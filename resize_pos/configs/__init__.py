"""Config files: what they state about the resolution, and how they follow a transfer."""
