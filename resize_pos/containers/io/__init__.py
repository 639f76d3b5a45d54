"""Bytes on disk: reading a source, copying ranges, writing a target whole or not at all."""
