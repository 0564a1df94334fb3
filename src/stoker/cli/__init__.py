"""The command line: the only place where the parts of Stoker are wired together."""
