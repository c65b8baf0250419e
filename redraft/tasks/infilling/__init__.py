"""Infilling: the holes of a template, their lengths and their fillings."""
