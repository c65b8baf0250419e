"""Showing: texts as they are written, a run as a page, pictures, the demo."""

from redraft.show.watch import display
