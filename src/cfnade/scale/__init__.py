"""Beyond one machine: the same job on Spark and torch.distributed.

May import all but the command line; only the command line imports it.
"""
