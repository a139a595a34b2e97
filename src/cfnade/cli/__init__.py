"""The command `cfnade`: one module per group of commands, and the console output.

May import everything.
"""
