#!lua flags=no-writes
-- pools: what waits for workers that pull, how many these are, and what they hold: counts, and the first of each index.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     the pools; if none is named, all that ever had a task or a worker
-- returns  { at (now), held_since: when this server began to lead, if it took over; pools }, rows of { name,
--          plain and groups: how many tasks, and heads of groups, could be claimed; waited: µs for which the next
--          one could have been; held: how many tasks its workers hold; known: how many workers' leases run;
--          silent: of these, how many have half of it behind them }
local now, names, rows = clock(), ARGV, {}
if #names == 0 then names = pools() end

local function waited(element)
  if not element then return 0 end
  local due = call('HGET', K.life .. id_of(element), 'due')
  return math.max(0, now - math.max(arrival_of(element), tonumber(due or nil) or 0))
end

for _, name in ipairs(names) do
  local leases = K.pool_pullers .. name
  local pool = { name = name, plain = 0, groups = 0, waited = 0, known = call('ZCOUNT', leases, digits(now), '+inf') }
  for _, kind in ipairs({ 'ordered', 'suspect_plain' }) do
    local index = index_of(kind, name)
    pool.plain = pool.plain + call('ZCARD', index)
    pool.waited = math.max(pool.waited, waited(call('ZRANGE', index, 0, 0)[1]))
  end
  for _, kind in ipairs({ 'ready', 'suspect_groups' }) do
    local index = index_of(kind, name)
    pool.groups = pool.groups + call('ZCARD', index)
    local group = call('ZRANGE', index, 0, 0)[1]
    pool.waited = math.max(pool.waited, waited(group and call('LINDEX', K.lane .. group, -1)))
  end
  pool.held = tonumber(call('ZSCORE', K.pool_holders .. name, '') or 0)
  -- All workers of a pool have one lease length; the last to call has the current one.
  local last = call('ZRANGE', leases, -1, -1)[1]
  local lease = last and tonumber(call('HGET', K.daemon .. last, 'lease') or nil) or 0
  pool.silent = call('ZCOUNT', leases, digits(now), '(' .. digits(now + lease / 2))
  rows[#rows + 1] = named(pool)
end
local epoch = call('HMGET', K.epoch, 'since', 'before')
return named({ at = now, held_since = epoch[2] and epoch[2] ~= '' and epoch[1] or nil, pools = rows })
