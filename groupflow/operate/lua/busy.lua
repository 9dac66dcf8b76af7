#!lua flags=no-writes
-- busy: the groups that matter now, with how many tasks wait in each. Not all: it sees claims, and the first
-- groups that are ready, delayed, parked or paused, so many of each.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 how many of each state at most
-- returns  { now, rows }, a row: group, none of a plain task that runs; state, waiting; if it runs:
--          since, task, daemon, worker
local most = tonumber(ARGV[1])
local rows, seen = {}, {}

local function add(group, state, claim)
  if group ~= '' and seen[group] then return end
  seen[group] = true
  rows[#rows + 1] = named({
    group = some(group), state = state, waiting = group ~= '' and call('LLEN', K.lane .. group) or 0,
    since = claim and claim.since, task = claim and id_of(claim.entry),
    daemon = claim and claim.daemon, worker = claim and claim.slot,
  })
end

for _, claim in ipairs(claims(most)) do add(claim.group, 'running', claim) end
each_waiting_group(most, add)
return named({ now = clock(), rows = rows })
