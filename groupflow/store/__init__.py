"""The only code that knows Redis: key names, a Lua script a verb, a module per caller's need."""
