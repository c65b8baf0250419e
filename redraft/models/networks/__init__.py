"""Networks: one transformer for every method, and the weights of other projects in it."""
