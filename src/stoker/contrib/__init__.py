"""Stoker in other frameworks. Each package here needs its framework, and only programs that use it import it."""
