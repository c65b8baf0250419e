"""Infilling: chooses the lengths of holes in a template and fills them."""
