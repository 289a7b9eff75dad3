"""The version of this package, for pyproject.toml and for comparing the driver with the executors."""

__version__ = "0.1.0"
