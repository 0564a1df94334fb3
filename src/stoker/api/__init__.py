"""The HTTP face of a coordinator. `endpoints.py` is the table that everything else is made from."""
