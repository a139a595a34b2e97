"""The network of the paper, its objective, training and inference."""
