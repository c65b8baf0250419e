"""`python -m redraft.apps.cli`, which torchrun can start too."""

from redraft.apps.cli import main

main()
