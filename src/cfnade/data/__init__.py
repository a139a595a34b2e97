"""Event logs and tables of counts become `Interactions`, relative ratings and splits.

May import the foundations only.
"""
