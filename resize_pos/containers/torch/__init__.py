"""Checkpoints of `torch.save`: zip archives, legacy streams and TorchScript."""
