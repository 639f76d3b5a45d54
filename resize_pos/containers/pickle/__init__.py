"""Pickles, read and edited as opcodes; nothing in them is ever executed."""
