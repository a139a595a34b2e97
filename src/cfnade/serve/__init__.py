"""A saved model as a service over HTTP, with a page to try it on: `cfnade serve MODEL`.

Needs the extra `serve`; nothing outside this package imports it but the command, when it is run.
"""
