"""Choice: the probabilities of given answers in the holes of a text."""
