"""A trained model as a folder of safetensors and JSON, or as an ONNX file.

May import `answer` and what `answer` may import.
"""
