"""Comparisons of models: contenders, protocol, sweep, tune, report, plots and the demo.

May import `baselines`, the estimator and all that they may import.
"""
