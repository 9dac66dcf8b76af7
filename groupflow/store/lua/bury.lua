#!lua flags=allow-oom
-- bury: the task has failed for good and becomes a dead letter, body and all. Its group goes on, or
-- is parked behind the death until somebody redrives or drops it.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session · 3 slot · 4 fence · 5 element · 6 group · 7 reason
--          · 8 the errors of its attempts (JSON) · 9 'park' or 'skip' · 10 how many attempts failed
--          · 11 type · 12 tenant ('' = none) · 13 kind: what the last attempt failed of, without its words
--          · 14 scope, where that is known · 15 context (JSON) that it is to begin with when it is redriven,
--          where that is another
-- returns  { state, { 1 (accepted, also a repeat) or 0 (the fence is stale) } }
local daemon = ARGV[1]
local state = session_state(daemon, ARGV[2])
if state ~= 'OK' then return { state, {} } end
local element, group, reason = ARGV[5], ARGV[6], ARGV[7]
local claim = end_claim(daemon, ARGV[3], ARGV[4], group)
if claim == 'live' then
  local now, id = clock(), id_of(element)
  remove_reason(id)
  keep_life(element, group, 'reason', reason, 'errors', ARGV[8], 'attempts', ARGV[10],
    'type', ARGV[11], 'tenant', ARGV[12], 'kind', ARGV[13])
  if ARGV[14] then call('HSET', K.life .. id, 'scope', ARGV[14]) end
  if ARGV[15] then call('HSET', K.life .. id, 'context', ARGV[15]) end
  add_letter(id, now)
  call('HINCRBY', K.count, 'buried', 1)
  if group ~= '' then
    if ARGV[9] == 'park' then call('HSET', K.parked, group, cjson.encode({ id, digits(now), reason })) end
    if place(group, now) then wake() end
  end
  count_end(group)
  write_counts(false)
end
return { 'OK', { claim == 'lost' and 0 or 1 } }
