"""`python -m redraft.apps.cli`, the form of the command that torchrun can start."""

from redraft.apps.cli import main

main()
