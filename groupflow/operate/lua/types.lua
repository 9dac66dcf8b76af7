#!lua flags=no-writes
-- types: which types no daemon knows: of those asked for, and of those that tasks wait for.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     the types asked for, or how some begin (`import.*`): these it seeks with some daemons, and takes for known
--          where one has very many types
-- returns  { now, knowing: how many daemons know any, missing: those asked for that none of them knows,
--          waiting: rows of { type, since (µs), tasks: how many wait for a daemon that knows it }, the longest
--          unknown first }
local SHOWN, LOOKED_AT, DAEMONS = 20, 1000, 10
local knowing, missing, waiting = {}, {}, {}
for _, daemon in ipairs(call('ZRANGE', K.daemons, 0, 999)) do
  if call('EXISTS', K.types .. daemon) == 1 then knowing[#knowing + 1] = daemon end
end

local function is_known(task_type)
  local is_beginning = sub(task_type, -1) == '*'
  for n, daemon in ipairs(knowing) do
    if call('HEXISTS', K.types .. daemon, task_type) == 1 then return true end
    if is_beginning and call('HLEN', K.types .. daemon) > LOOKED_AT then return true end
    for _, each in ipairs(is_beginning and n <= DAEMONS and call('HKEYS', K.types .. daemon) or {}) do
      if is_of_type(each, task_type) then return true end
    end
  end
  return false
end

for _, task_type in ipairs(ARGV) do
  if not is_known(task_type) then missing[#missing + 1] = task_type end
end
local clocks = call('ZRANGE', K.unknown, 0, LOOKED_AT - 1, 'WITHSCORES')
for i = 1, #clocks, 2 do
  local tasks = #waiting < SHOWN and call('ZCARD', K.unknown_tasks .. clocks[i]) or 0
  if tasks > 0 and clocks[i + 1] ~= '0' then
    waiting[#waiting + 1] = named({ type = clocks[i], since = digits(clocks[i + 1]), tasks = tasks })
  end
end
return named({ now = clock(), knowing = #knowing, missing = missing, waiting = waiting })
