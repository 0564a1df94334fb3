"""The log of Stoker's processes: what is logged (`events`), how (`log`), for people (`terminal`), and where (`stream`)."""
