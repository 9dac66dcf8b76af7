"""All partitions of a namespace as of one: what each answers, put together."""
