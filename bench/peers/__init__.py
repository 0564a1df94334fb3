"""Other queues that Stoker is compared with.

`python -m bench.peers` measures all of them, each in an environment of its own (`systems.py` is the table, `drivers/` has
what runs there), and draws growth curves of Stoker alone (`growth.py`). `pgqueuer.py`, `procrastinate.py` and `script.py`
belong to `python -m bench.postgres`, which loads the queues on PostgreSQL with many producers at once.
"""
