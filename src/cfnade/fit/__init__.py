"""From counts to a trained model: plan, hold out, search, train, read out, refit, calibrate.

May import `storage` and what `storage` may import.
"""
