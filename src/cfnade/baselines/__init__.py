"""The models CF-NADE is compared with, each a Scorer."""
