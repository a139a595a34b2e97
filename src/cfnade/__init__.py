"""Implicit CF-NADE: a neural autoregressive recommender for implicit counts."""

from __future__ import annotations
