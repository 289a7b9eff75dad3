"""The tests, in folders that mirror the package. A package itself, so that no other `tests` on the path is mixed with it."""
