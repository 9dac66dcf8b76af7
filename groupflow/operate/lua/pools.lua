#!lua flags=no-writes
-- pools: what waits for workers that pull, and who they are. A look at the best of each index, not a walk.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 how many workers to tell of, at most · then the pools asked about; where none is named, all that
--          ever had a task
-- returns  { at (now), held_since: when this server began to lead, where it took over; pools }, rows of { name,
--          plain and groups: how many tasks, and heads of groups, could be claimed; waited: µs for which the one
--          that goes next could have been; held: how many tasks its workers hold; known, and silent: how many
--          workers there are, and of how many half of the lease is over; workers }, rows of { name, lease (µs),
--          lease_left (µs), held, since: µs since when it holds the oldest of them }
local now, most = clock(), tonumber(ARGV[1])
local names, found = { unpack(ARGV, 2) }, {}
if #names == 0 then names = pools() end

local function waited(element)
  if not element then return 0 end
  local due = call('HGET', K.life .. id_of(element), 'due')
  return math.max(0, now - math.max(arrival_of(element), tonumber(due or nil) or 0))
end

for _, name in ipairs(names) do
  local pool = { name = name, plain = 0, groups = 0, waited = 0, held = 0, known = 0, silent = 0, workers = {} }
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
  found[name] = pool
end

local pullers = call('ZRANGE', K.pullers, 0, 99999, 'WITHSCORES')
for i = 1, #pullers, 2 do
  local name, worker = string.match(pullers[i], '^pool/([^/]+)/(.*)$')
  local pool = found[name]
  if pool then
    local held, since = 0, nil
    for _, checkpoint in ipairs(call('HVALS', K.worker .. pullers[i])) do
      local claim = claim_of(checkpoint)
      if claim then
        held = held + 1
        if not since or claim.since < since then since = claim.since end
      end
    end
    local lease, left = call('HGET', K.daemon .. pullers[i], 'lease') or '0', tonumber(pullers[i + 1]) - now
    pool.held, pool.known = pool.held + held, pool.known + 1
    if left < tonumber(lease) / 2 then pool.silent = pool.silent + 1 end
    if most > 0 then
      most = most - 1
      pool.workers[#pool.workers + 1] = named({
        name = worker, lease = lease, held = held, since = since, lease_left = left,
      })
    end
  end
end
local rows = {}
for _, name in ipairs(names) do rows[#rows + 1] = named(found[name]) end
local epoch = call('HMGET', K.epoch, 'since', 'before')
return named({ at = now, held_since = epoch[2] and epoch[2] ~= '' and epoch[1] or nil, pools = rows })
