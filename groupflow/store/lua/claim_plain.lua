#!lua flags=allow-oom
-- claim (plain): give each idle worker the plain task with the smallest order_time.
-- A worker that holds a claim already is given that one again, so a lost reply costs nothing.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 daemon · 2 session · 3… one idle worker each
-- returns  { state, rows of { worker, fence, element, '', envelope and body, life as a flat list } }
local daemon = ARGV[1]
local state = session_state(daemon, ARGV[2])
if state ~= 'OK' then return { state, {} } end
local now, rows = clock(), {}
local stopped = call('EXISTS', K.paused_all) == 1
local some_ordered = call('ZCARD', K.ordered) > 0

-- The list is in order of arrival by itself; the zset holds what isn't. The smaller of the two heads
-- goes first.
local function next_element()
  if not some_ordered then return call('RPOP', K.plain) end
  local best = call('ZRANGE', K.ordered, 0, 0, 'WITHSCORES')
  local oldest = call('LINDEX', K.plain, -1)
  if best[1] and (not oldest or tonumber(best[2]) <= arrival_of(oldest)) then
    call('ZREM', K.ordered, best[1])
    return best[1]
  end
  return call('RPOP', K.plain)
end

local missing = 0
for i = 3, #ARGV do
  local row = held_by(daemon, ARGV[i])
  while not row and not stopped and missing < 100 do
    local element = next_element()
    if not element then break end
    row = give(daemon, ARGV[i], call('INCR', K.fence), element, '', now)
    if not row then missing = missing + 1 end
  end
  if row then rows[#rows + 1] = row end
end
if running > 0 then call('HINCRBY', K.count, 'running_plain', running) end
if running + missing > 0 then call('HINCRBY', K.count, 'queued_plain', -running - missing) end
return { 'OK', rows }
