"""`python -m redraft.cli`, which torchrun can start too."""

from redraft.cli import main

main()
