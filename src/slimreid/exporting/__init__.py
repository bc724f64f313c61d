"""Export: a trained model becomes a folder of ONNX graphs that onnxruntime runs without torch."""
