#!lua flags=no-writes
-- top: the groups that matter now, with what waits in them. A look, not a census: it sees the groups
-- that run and the first of those that are ready, delayed, parked or paused, so many of each.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 how many of each state at most
-- returns  { now (µs), rows of { group, state, tasks that wait in it, since (µs) or 0, task, daemon,
--            worker }, the last three '' unless it runs; plain tasks that run come with the group '' }
local most = tonumber(ARGV[1])
local rows, seen = {}, {}

local function add(group, state, since, id, daemon, worker)
  if group ~= '' and seen[group] then return end
  seen[group] = true
  local waiting = group ~= '' and call('LLEN', K.lane .. group) or 0
  rows[#rows + 1] = { group, state, waiting, since or 0, id or '', daemon or '', worker or '' }
end

local running = 0
for _, daemon in ipairs(call('ZRANGE', K.daemons, 0, 999)) do
  if running >= most then break end
  local checkpoints = call('HGETALL', K.worker .. daemon)
  for i = 1, #checkpoints, 2 do
    local claim = claim_of(checkpoints[i + 1])
    if claim and running < most then
      running = running + 1
      local since = tonumber(string.sub(checkpoints[i + 1], 34, 49))
      add(claim.group, 'running', since, id_of(claim.element), daemon, checkpoints[i])
    end
  end
end

-- HSCAN returns a small hash whole, and of a large one a page.
local function some_fields(key)
  local found, page = {}, call('HSCAN', key, 0, 'COUNT', most)[2]
  for i = 1, math.min(#page, 2 * most), 2 do found[#found + 1] = page[i] end
  return found
end

for _, group in ipairs(some_fields(K.paused)) do add(group, 'paused') end
for _, group in ipairs(some_fields(K.parked)) do add(group, 'parked') end
local ready = members_of(READY, 0, most)
for i = 1, #ready, 2 do add(ready[i], 'ready') end
for _, group in ipairs(call('ZRANGE', K.held, 0, most - 1)) do add(group, 'delayed') end
return { clock(), rows }
