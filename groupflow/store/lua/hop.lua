#!lua flags=allow-oom
-- hop: a task is done, and its slot goes on with the next one of its group, under the same lock. It is the cheapest
-- exchange for one slot, where there are only groups that run, and the next task has neither a task state nor limits.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session · 3 slot · 4 fence (16 digits) · 5 entry · 6 group · 7 its line for the history
-- returns  { of the claim of the next one: its fence, Redis's clock (µs), entry, envelope and body }; or, with
--          nothing written, { 0 }: an ordinary exchange finds out more
local daemon, slot, fence, entry, group = ARGV[1], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if session_state(daemon, ARGV[2]) ~= 'OK' then return { 0 } end
local checkpoint = call('HGET', K.worker .. daemon, slot)
if not checkpoint or byte(checkpoint) ~= LIVE or sub(checkpoint, 2, 17) ~= fence then return { 0 } end
if quarantine or is_beside_others() or is_withheld(group) then return { 0 } end
local now, lane = clock(), K.lane .. group
if tonumber(call('ZSCORE', K.daemons, daemon) or 0) < now then return { 0 } end
local next_one = call('LINDEX', lane, -1)
local envelope = next_one and not has_state(next_one) and call('HGET', K.tasks, id_of(next_one))
if not envelope then return { 0 } end
if is_limiting() then
  local is_charged = tenants().of(next_one) or call('HEXISTS', K.charged, fence) == 1
  if is_charged or not limits().are_none(group, next_one) then return { 0 } end
end

call('RPOP', lane)
local following, id, at = call('INCR', K.fence), id_of(entry), digits(now)
local shown = digits(following)
call('SET', K.lock .. group, shown .. ' ' .. daemon .. ' ' .. slot)
call('HSET', K.worker .. daemon, slot, live(shown, 'S' .. fence, at, next_one, group))
call('HDEL', K.tasks, id)
call('HSET', K.history_new, id, at .. ARGV[7])
if has_state(entry) then end_state(id) end
call('HINCRBY', K.count, 'done', 1)
call('HINCRBY', K.count, 'queued_grouped', -1)
-- The task behind it may be of a rule that lets several run at once.
if is_limiting() and place(group, now) then tell('grouped') end
return { following, now, next_one, envelope }
