"""`python -m cfnade` is the command `cfnade`."""

from cfnade.cli.main import main

main()
