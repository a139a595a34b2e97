"""`python -m cfnade` is the command `cfnade`."""

from cfnade.cli import main

main()
