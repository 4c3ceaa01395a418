"""The command line. Only here are imports hidden in functions: a verb loads what it runs."""
