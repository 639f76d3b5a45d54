"""The `.safetensors` format."""
