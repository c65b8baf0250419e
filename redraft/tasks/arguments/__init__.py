"""Arguments of the tasks, shared by Python, the command line and the server. Needs no torch."""
