"""The engine of all tasks: from a request to a plan, to rows being written, to a result."""
