#!lua flags=no-writes
-- daemon: what a daemon tells of itself, its lease here, what it alone does here, and what it runs.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 how many claims are told at most
-- returns  { now }; where it has a session also lease_left (µs), info (JSON), roles: those of `roles.lua` that it has,
--          plain and grouped: how many claims it holds of each pool, the prefetched ones too; claims: rows of { id, group,
--          type, tenant, worker, since (µs), progress (see `progress_of`) }, the oldest first
local PLAIN_SLOT = byte('p') -- as the names of slots of plain tasks begin
local now, daemon = clock(), ARGV[1]
local ends, known = call('ZSCORE', K.daemons, daemon), call('HMGET', K.daemon .. daemon, 'session', 'info')
if not ends then return named({ now = now }) end
local roles, held, found, rows = {}, { plain = 0, grouped = 0 }, {}, {}
for _, role in ipairs({ 'archiver', 'relay' }) do
  local kept = call('HGET', K.segments, role)
  local has = kept and sub(kept, 18) == (known[1] or '') .. ' ' .. daemon and tonumber(sub(kept, 1, 16)) > now
  if has then roles[#roles + 1] = role end
end
add_claims(found, daemon, 100000)
for _, claim in ipairs(found) do
  local pool = byte(claim.slot) == PLAIN_SLOT and 'plain' or 'grouped'
  held[pool] = held[pool] + 1
end
table.sort(found, is_earlier)
for i = 1, math.min(#found, ARGV[2]) do
  local claim, id = found[i], id_of(found[i].entry)
  local task_type, tenant = facts_of(id)
  rows[i] = named({ id = id, group = some(claim.group), type = task_type, tenant = some(tenant), worker = claim.slot,
    since = claim.since, progress = progress_of(claim) })
end
return named({ now = now, lease_left = tonumber(ends) - now, info = known[2] or '{}', roles = roles,
  plain = held.plain, grouped = held.grouped, claims = rows })
