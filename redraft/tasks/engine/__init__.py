"""What all tasks share: a request becomes a plan, the plan's loops decode rows, and the rows become a result."""
