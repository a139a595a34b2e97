"""From counts to a trained model: plan, hold out, start, train, read out, calibrate.

May import `storage` and what `storage` may import.
"""
