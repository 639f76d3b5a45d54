"""Checkpoints on disk: one package per file format behind `base.Container`."""
