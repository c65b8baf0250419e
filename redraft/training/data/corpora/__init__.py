"""Public corpora, and corpora with known distributions: stories, tasks made from them, programs, points."""

NAMED = {  # name on the command line → file and class
    "stories": "story_tasks.StoryCorpus",
    "sotu": "benchmarks.Sotu",
}
