"""Metrics, comparison, sweeps and the report: for any Scorer."""
