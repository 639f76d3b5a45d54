"""Torch distributed checkpoints: a `.metadata` file and the `.distcp` files it describes."""
