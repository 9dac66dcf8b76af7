#!lua flags=no-writes
-- pool_workers: some of the workers of a pool whose leases run, the longest silent first. A worker that calls
-- meanwhile goes behind all others, and is listed again; none is missed.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 pool · 2 how many at most · 3 the worker to go on behind, '' to begin · 4 its `ends`, as
--          returned
-- returns  { workers }, rows of { name, lease (µs), ends: when it runs out, as the store has it; lease_left (µs),
--          held: how many tasks, since: when (µs) it claimed the oldest of them }
local now, pool, looked, rows = clock(), ARGV[1], 0, {}
local leases = K.pool_pullers .. pool
local front = 'pool/' .. pool .. '/'
local from = call('ZCOUNT', leases, '-inf', '(' .. digits(now))
if ARGV[3] ~= '' then
  local last = front .. ARGV[3]
  if call('ZSCORE', leases, last) == ARGV[4] then
    from = math.max(from, call('ZRANK', leases, last) + 1)
  else
    from = math.max(from, call('ZCOUNT', leases, '-inf', '(' .. ARGV[4]))
  end
end
local pullers = call('ZRANGE', leases, from, from + ARGV[2] - 1, 'WITHSCORES')
for i = 1, #pullers, 2 do
  if looked >= MOST_LOOKED_AT then break end
  local puller, ends = pullers[i], pullers[i + 1]
  local held, since = call('ZSCORE', K.pool_holders .. pool, puller), nil
  local checkpoints = held and call('HVALS', K.worker .. puller) or {}
  for _, checkpoint in ipairs(checkpoints) do
    local claim = claim_of(checkpoint)
    if claim and (not since or claim.since < since) then since = claim.since end
  end
  looked = looked + #checkpoints
  rows[#rows + 1] = named({
    name = sub(puller, #front + 1), lease = call('HGET', K.daemon .. puller, 'lease') or '0', ends = ends,
    held = tonumber(held or 0), since = since, lease_left = tonumber(ends) - now,
  })
end
return named({ workers = rows })
