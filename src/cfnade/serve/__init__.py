"""A saved model over HTTP, with a page to try it on: a thin layer over `answer`.

May import `compare` and all that it may import.
"""
