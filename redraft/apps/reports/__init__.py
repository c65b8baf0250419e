"""Reports: texts as they are written, pages about runs and comparisons, pictures, the demo."""
