"""The version of this package, for pyproject.toml and for comparing the driver with the executors."""

__version__ = "0.1.0"


def check_version(driver: str) -> None:
    """Raises RuntimeError if a task runs another version of this package than the driver, whose plan it has."""
    if driver != __version__:
        raise RuntimeError(
            f"the executors run delta-variant {__version__} and the driver runs {driver}: install the same version in the "
            "Python of both"
        )
