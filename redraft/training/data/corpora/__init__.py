"""Public corpora, and corpora with known distributions: stories, tasks made from them, programs, points."""
