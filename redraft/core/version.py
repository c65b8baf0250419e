"""The version of the package; `pyproject.toml` and `redraft.__version__` read it here."""

__version__ = "0.1.0"
