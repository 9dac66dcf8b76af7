#!lua flags=allow-oom
-- claim (grouped): give each idle worker the head of the best ready group, under that group's lock.
-- A worker that holds a claim already is given that one again, so a lost reply costs nothing.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 daemon · 2 session · 3… one idle worker each
-- returns  { state, rows of { worker, fence, element, group, envelope and body, life as a flat list } }
local daemon = ARGV[1]
local state = session_state(daemon, ARGV[2])
if state ~= 'OK' then return { state, {} } end
local now, rows = clock(), {}
local stopped = call('EXISTS', K.paused_all) == 1
local missing = 0

-- One try at the best ready group. Returns a row, or false where a damaged group was passed over.
local function claim_group(worker, group)
  local fence = call('INCR', K.fence)
  if not call('SET', K.lock .. group, digits(fence) .. ' ' .. daemon .. ' ' .. worker, 'NX') then return false end
  local element = call('RPOP', K.lane .. group)
  local row = element and give(daemon, worker, fence, element, group, now)
  if row then return row end
  if element then missing = missing + 1 end
  call('DEL', K.lock .. group)
  place(group, now)
  return false
end

local misses = 0
for i = 3, #ARGV do
  local row = held_by(daemon, ARGV[i])
  while not row and not stopped and misses < 100 do
    local best = call('ZPOPMIN', K.ready)
    if not best[1] then break end
    row = claim_group(ARGV[i], best[1])
    if not row then misses = misses + 1 end
  end
  if row then rows[#rows + 1] = row end
end
if running > 0 then call('HINCRBY', K.count, 'running_grouped', running) end
if running + missing > 0 then call('HINCRBY', K.count, 'queued_grouped', -running - missing) end
return { 'OK', rows }
