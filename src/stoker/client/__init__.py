"""The SDK: what a program imports to declare tasks, submit jobs and read their results."""
