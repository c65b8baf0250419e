"""Corpora of the field by name, and corpora whose truth is known: stories, tasks made of them, programs, points."""

NAMED = {  # what `--data` calls them → file and class
    "stories": "story_tasks.StoryCorpus",
    "sotu": "benchmarks.Sotu",
}
