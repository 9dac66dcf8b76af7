#!lua flags=allow-oom
-- advance: this stage is done; the task waits again, for its next stage, at attempt 1. In a group it
-- stays the head, or lines up at the back, so that others get their turn. With a delay it waits as after
-- a failure, as the head or aside; but not at all where somebody hastened it while it ran.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session · 3 slot · 4 fence · 5 element · 6 group · 7 stage
--          · 8 context (JSON) · 9 'hold' or 'step-aside' · 10 delay of the next stage (µs), 0 for none
--          · 11 'anew' for a shard of a scan whose turn went well: its crashes so far don't count any more,
--          and with a delay it sleeps; else ''
-- returns  { state, { 1 (accepted, also a repeat) or 0 (the fence is stale) } }
local daemon = ARGV[1]
local state = session_state(daemon, ARGV[2])
if state ~= 'OK' then return { state, {} } end
local element, group = ARGV[5], ARGV[6]
local claim = end_claim(daemon, ARGV[3], ARGV[4], group)
if claim == 'live' then
  local now, id = clock(), id_of(element)
  local priority = tonumber(call('HGET', K.life .. id, 'priority') or 0)
  local waiting = with_life(element)
  if group ~= '' and ARGV[9] == 'step-aside' then
    -- A new place in the line needs an arrival of its own; when it came first is kept beside it.
    call('HSETNX', K.life .. id, 'enqueued', string.sub(element, 1, 16))
    local arrival = digits(math.max(now, tonumber(call('HGET', K.count, 'arrival') or 0) + 1))
    call('HSET', K.count, 'arrival', arrival)
    waiting = arrival .. '+' .. id
  end
  local delay = tonumber(ARGV[10])
  if call('HDEL', K.life .. id, 'hastened') == 1 then delay = 0 end
  local due = delay > 0 and digits(now + delay)
  local order = due or digits(now - priority)
  keep_life(waiting, group, 'stage', ARGV[7], 'context', ARGV[8], 'attempt', 1, 'order', order)
  if ARGV[11] == 'anew' then call('HDEL', K.life .. id, 'crashes', 'lost_leases') end
  if due then call('HSET', K.life .. id, 'due', due) else call('HDEL', K.life .. id, 'due') end
  if due and (group == '' or ARGV[9] == 'step-aside') then
    call('ZADD', K.delayed, due, waiting)
    if ARGV[11] == 'anew' then put_on('asleep', id, 1) end
    wake_at_due()
    if group ~= '' then place(group, now) end
  else
    put_back(waiting, group, now)
  end
  call('HINCRBY', K.count, 'advanced', 1)
  count_end(group)
  write_counts(true)
  wake()
end
return { 'OK', { claim == 'lost' and 0 or 1 } }
