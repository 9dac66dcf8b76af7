#!lua flags=allow-oom
-- hop: what `hand_on` does, in the least that it takes, where a namespace has nothing but groups that run.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session · 3 slot · 4 fence (16 digits) · 5 element · 6 group · 7 its line for the
--          history · 8 element of the next one, which has no life
-- returns  { the fence of the claim of the next one, Redis's clock (µs) }; or, with nothing written, { 0 } where
--          an ordinary exchange finds out more, and { -1 } where `hand_on` does: something else may go first
local daemon, slot, fence, element, group, next_one = ARGV[1], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[8]
if session_state(daemon, ARGV[2]) ~= 'OK' then return { 0 } end
local checkpoint = call('HGET', K.worker .. daemon, slot)
if not checkpoint or byte(checkpoint) ~= LIVE or sub(checkpoint, 2, 17) ~= fence then return { 0 } end
if mark or is_beside_others() then return { -1 } end
local now, lane = clock(), K.lane .. group
if tonumber(call('ZSCORE', K.daemons, daemon) or 0) < now then return { 0 } end
local head = call('RPOP', lane)
if head ~= next_one then
  if head then call('RPUSH', lane, head) end
  return { 0 }
end

local following, id, at = call('INCR', K.fence), id_of(element), digits(now)
local shown = digits(following)
call('SET', K.lock .. group, shown .. ' ' .. daemon .. ' ' .. slot)
call('HSET', K.worker .. daemon, slot, live(shown, 'S' .. fence, at, next_one, group))
call('HDEL', K.tasks, id)
call('HSET', K.history_new, id, at .. ARGV[7])
if has_life(element) then end_life(id) end
call('HINCRBY', K.count, 'done', 1)
call('HINCRBY', K.count, 'queued_grouped', -1)
return { following, now }
