"""The only code that knows Redis: key names, one Lua script a verb, one module per caller's need."""
