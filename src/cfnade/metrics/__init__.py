"""MPR, recall and nDCG with bootstrap intervals for any `Scorer`, and the search over settings.

May import `data` and the foundations.
"""
