"""Showing: texts as they are written, a run as a page, pictures, the demo."""
