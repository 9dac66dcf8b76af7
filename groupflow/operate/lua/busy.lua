#!lua flags=no-writes
-- busy: the groups that matter now, with how many tasks wait in each. Not all: it sees claims, and the first
-- groups that are ready, delayed, parked or paused, so many of each. Without the plain tasks it sees the groups too that
-- `find_longest` has found.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 how many of each state at most · 2 'plain' where plain tasks that run count too, else ''
-- returns  { now, rows, longest: the groups with the longest lanes, where no plain tasks are asked for }, a row: group,
--          none of a plain task that runs; state, waiting; oldest: arrival of its head; if it runs: since, task, daemon,
--          worker, progress (see `progress_of`)
local most, of_groups = tonumber(ARGV[1]), ARGV[2] == ''
local rows, seen = {}, {}

local function add(group, state, claim)
  if group ~= '' and seen[group] then return end
  seen[group] = true
  local head = group ~= '' and call('LINDEX', K.lane .. group, -1)
  rows[#rows + 1] = named({
    group = some(group), state = state, waiting = head and call('LLEN', K.lane .. group) or 0,
    oldest = head and sequence_of(head) or nil,
    since = claim and claim.since, task = claim and id_of(claim.entry),
    daemon = claim and claim.daemon, worker = claim and claim.slot, progress = claim and progress_of(claim),
  })
end

local function state_of_group(group)
  if call('EXISTS', K.lock .. group) == 1 then return 'running' end
  if call('HEXISTS', K.paused, group) == 1 then return 'paused' end
  if call('HEXISTS', K.parked, group) == 1 then return 'parked' end
  if call('ZSCORE', K.held, group) then return 'delayed' end
  return 'ready'
end

for _, claim in ipairs(claims(most, of_groups)) do add(claim.group, 'running', claim) end
each_waiting_group(most, add)
local longest = of_groups and known_longest().groups or {}
for _, group in ipairs(longest) do add(group, state_of_group(group)) end
return named({ now = clock(), rows = rows, longest = longest })
