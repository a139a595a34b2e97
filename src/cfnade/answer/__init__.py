"""What one can ask a trained model: recommendations, filters, reasons, similar items, probability.

May import `beyond` and what `beyond` may import.
"""
