#!lua flags=no-writes
-- tenant_figures: what of some tenants waits for its turn and runs, and their limits.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     the tenants, each its scope and name
-- returns  { at (now), rows, one a tenant, empty if nothing of it waits or runs: groups and plain tasks that wait
--          for its turn, running, concurrency (0 for any; this partition's share), rate (as it was written),
--          free (µs): when it may start something, none at its concurrency; limited_by, 'rate' or 'closed',
--          if that is to come; oldest: arrival of its next group's head, or next plain task, the lower one;
--          by_hand: until when (µs) its limits are by hand }
local now, rows = clock(), {}

local function sequence_in(kind, tenant)
  local best = call('ZRANGE', K.waits .. kind .. tenant, 0, 0)[1]
  if best and (kind == 'g' or kind == 'G') then best = call('LINDEX', K.lane .. best, -1) end
  return best and sequence_of(best)
end

for _, tenant in ipairs(ARGV) do
  local function waiting(kind) return call('ZCARD', K.waits .. kind .. tenant) end
  local groups, plain = waiting('g') + waiting('G'), waiting('p') + waiting('P')
  local running, row = tenants().running(tenant), {}
  if groups + plain + running > 0 then
    local limit, oldest = tenants().limit_of(tenant), nil
    local free, what = tenants().free_at(tenant, now)
    for _, kind in ipairs({ 'g', 'G', 'p', 'P' }) do
      local sequence = sequence_in(kind, tenant)
      if sequence and sequence < (oldest or NO_END) then oldest = sequence end
    end
    row = named({
      groups = groups, plain = plain, running = running, concurrency = limit.concurrency, rate = some(limit.rate or ''),
      free = free, limited_by = free and free > now and what or nil, oldest = oldest, by_hand = limit.till,
    })
  end
  rows[#rows + 1] = row
end
return { now, rows }
