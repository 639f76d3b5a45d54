"""ONNX models: the protobuf is edited in place; the `onnx` library decides if the graph fits."""
