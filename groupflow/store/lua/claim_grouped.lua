#!lua flags=allow-oom
-- claim (grouped): give each idle worker the head of a ready group, the best group first, under that
-- group's lock. A worker that holds a claim already is given that one again, so a lost reply costs
-- nothing.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 daemon · 2 session · 3… one idle worker each, 500 at most
-- returns  { state, rows of { worker, fence, element, group, envelope and body, life as a flat list } }
local daemon = ARGV[1]
local state = session_state(daemon, ARGV[2])
if state ~= 'OK' then return { state, {} } end
local now = clock()
local rows, idle = split_workers(daemon, { unpack(ARGV, 3) }, now)
if #idle == 0 then return { 'OK', rows } end

local claims = {}
local best = call('ZPOPMIN', K.ready, #idle)
if #best == 0 then return { 'OK', rows } end
local fence = take_fences(#best / 2)
for i = 1, #best, 2 do
  local group, worker = best[i], idle[#claims + 1]
  if call('SET', K.lock .. group, digits(fence) .. ' ' .. daemon .. ' ' .. worker[1], 'NX') then
    local element = call('RPOP', K.lane .. group)
    if element then
      claims[#claims + 1] = { worker, fence, element, group }
    else
      call('DEL', K.lock .. group)
    end
  end
  fence = fence + 1
end
local passed = give(daemon, claims, rows, now)
for _, claim in ipairs(passed) do
  call('DEL', K.lock .. claim[4])
  place_unlocked(claim[4], now)
end
count_claims('grouped', #claims, #passed)
return { 'OK', rows }
