#!lua flags=no-writes
-- exist: which message ids have a task that waits, runs, or is a dead letter. A task under a derived id counts, another
-- scope's does not.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     two each: id · scope
-- returns  one 1 or 0 each
local found = {}
for i = 1, #ARGV, 2 do
  local is_there = 0
  for _, name in ipairs(names_of(ARGV[i], ARGV[i + 1])) do
    if is_here(name) then is_there = 1 end
  end
  found[#found + 1] = is_there
end
return found
