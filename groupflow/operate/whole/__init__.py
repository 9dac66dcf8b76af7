"""All partitions of a namespace as one: the answers of each, put together."""
