#!lua flags=no-writes
-- pools: what waits for workers that pull, how many these are, and what they hold: counts, and the first of each index.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     the pools; if none is named, all that ever had a task or a worker
-- returns  { pools }, rows of { name,
--          plain and groups: how many tasks, and heads of groups, could be claimed; waited: µs for which the next
--          one could have been; waiting: how many tasks, and heads of groups, wait for the limits of their types;
--          held: how many tasks its workers hold; known: how many workers' leases run; silent: of these, how many have
--          half of it behind them }
local now, names, rows = clock(), ARGV, {}
if #names == 0 then names = pools() end

-- By pool, without what has the turn of a line: that could be claimed.
local waiting = {}
for _, line in ipairs(call('ZRANGE', K.cap_lines, 0, 9999)) do
  local place, pool = line_named(line)
  local number = call('ZCARD', K.cap_waits .. place) - call('HEXISTS', K.cap_turns, place)
  waiting[pool] = (waiting[pool] or 0) + number
end

for _, name in ipairs(names) do
  local leases = K.pool_pullers .. name
  local groups, plain = indexes_of(name)
  local pool = {
    name = name, plain = count_in(plain), groups = count_in(groups),
    known = pullers_of(name, now), waiting = waiting[name] or 0,
    waited = math.max(longest_wait(plain, now), longest_wait(groups, now, true)),
  }
  pool.held = tonumber(call('ZSCORE', K.pool_holders .. name, '') or 0)
  -- All workers of a pool have one lease length; the last to call has the current one.
  local last = call('ZRANGE', leases, -1, -1)[1]
  local lease = last and tonumber(call('HGET', K.daemon .. last, 'lease') or nil) or 0
  pool.silent = call('ZCOUNT', leases, digits(now), '(' .. digits(now + lease / 2))
  rows[#rows + 1] = named(pool)
end
return named({ pools = rows })
