"""The paper and nothing else: network (Eq. 9-13), objective (Eq. 14), training, numpy inference.

May import `data`, `metrics` and the foundations.
"""
