"""One address in front of several servers: routes, queues, keys, and the flag that is forgotten."""
