#!lua flags=no-writes
-- tenant_figures: what of some tenants waits for its turn and runs, and their limits.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     the tenants, each its scope and name
-- returns  { at (now), rows, one a tenant: groups and plain tasks that wait for its turn, running: claims that count
--          for it, concurrency (0 for any; this partition's share), rate (as it was written),
--          free (µs): when it may start something, none at its concurrency; limited_by, 'rate' or 'closed',
--          if that is to come; by_hand: until when (µs) its limits are by hand }
local now, rows = clock(), {}
for _, tenant in ipairs(ARGV) do
  local function waiting(kind) return call('ZCARD', K.waits .. kind .. tenant) end
  local limit = tenants().limit_of(tenant)
  local free, what = tenants().free_at(tenant, now)
  rows[#rows + 1] = named({
    groups = waiting('g') + waiting('G'), plain = waiting('p') + waiting('P'), running = tenants().running(tenant),
    concurrency = limit.concurrency, rate = some(limit.rate or ''), by_hand = limit.till,
    free = free, limited_by = free and free > now and what or nil,
  })
end
return { now, rows }
