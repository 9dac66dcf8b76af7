#!lua flags=no-writes
-- exist: which tasks are there, whatever state they are in: they wait, run, or are dead letters.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     one id each
-- returns  one 1 or 0 an id
local found = {}
for i, id in ipairs(ARGV) do
  local is_there = call('HEXISTS', K.tasks, id) == 1 or call('ZSCORE', K.dead, id)
  found[i] = is_there and 1 or 0
end
return found
