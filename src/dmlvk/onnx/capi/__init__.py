"""The modules of ONNX Runtime's that scripts import names from, above all its exceptions."""
