"""Several machines: preparation and scoring on Spark, training with torch.distributed.

May import everything but the command line, which alone imports it.
"""
