#!lua flags=allow-oom
-- claim (grouped): give each idle slot the head of a ready group, the best group first, under that
-- group's lock; or one suspect head to one of them, where the daemon runs no suspect. A slot that holds
-- a claim already is given that one again, so a lost reply costs nothing.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 daemon · 2 session · 3… one idle slot each, 500 at most
-- returns  { state, a flat list of six a claim: slot · fence (16 digits) · element · group
--          · envelope and body · life as a flat list, '' where it has none; Redis's clock (µs);
--          1 where the daemon runs a suspect, in either pool, else 0 }
local daemon = ARGV[1]
local state = session_state(daemon, ARGV[2])
if state ~= 'OK' then return { state, {}, 0, 0 } end
local now = clock()
local rows, idle = split_slots(daemon, { unpack(ARGV, 3) }, now)
if #idle == 0 then return { 'OK', rows, now, mark and 1 or 0 } end

local claims = {}
local suspect = take_suspect(K.suspect_groups)
local best = suspect and { suspect } or call('ZRANGE', K.ready, 0, #idle - 1)
if #best == 0 then return { 'OK', rows, now, mark and 1 or 0 } end
if not suspect then call('ZREMRANGEBYRANK', K.ready, 0, #best - 1) end
local first = take_fences(#best)
for i, group in ipairs(best) do
  local fence, slot = digits(first + i - 1), idle[#claims + 1]
  if call('SET', K.lock .. group, fence .. ' ' .. daemon .. ' ' .. slot[1], 'NX') then
    local element = call('RPOP', K.lane .. group)
    if element then
      claims[#claims + 1] = { slot, fence, element, group }
    else
      call('DEL', K.lock .. group)
    end
  end
end
local passed = give(daemon, claims, rows, now)
for _, claim in ipairs(passed) do
  call('DEL', K.lock .. claim[4])
  place_unlocked(claim[4], now)
end
if suspect and #claims > #passed then mark_suspect(daemon, claims[1], now) end
count_claims('grouped', #claims, #passed)
return { 'OK', rows, now, mark and 1 or 0 }
