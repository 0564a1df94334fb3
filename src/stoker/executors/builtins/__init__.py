"""The built-in job types, one module per kind. `stoker.executors.builtin` has the table of them.

The C++ runner has the same types with the same rules; `tests/runner/cases.py` holds both to one table of cases.
"""
