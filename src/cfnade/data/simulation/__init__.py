"""A simulated streaming service of any size, whose true preferences are known.

May import the rest of `data` and the foundations.
"""
