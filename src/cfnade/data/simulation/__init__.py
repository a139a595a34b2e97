"""A simulated streaming service of any size, whose true preferences are known."""
