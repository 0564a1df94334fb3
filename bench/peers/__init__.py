"""The PostgreSQL queues that Stoker is compared with, each behind the same three commands (`script.py`).

They run in processes of their own, under any interpreter that has them installed.
"""
