"""What is not in the paper, one idea per file: direct path, factors, readout, features.

May import `model` and what `model` may import.
"""
