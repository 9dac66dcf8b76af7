#!lua flags=allow-oom
-- retry: the attempt failed, and there will be another one. The task waits for its time: in a group
-- either as the head, which holds those behind it, or aside, which lets them go on.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session · 3 slot · 4 fence · 5 element · 6 group · 7 next attempt's number
--          · 8 delay (µs) · 9 'hold' or 'step-aside' · 10 the errors of its attempts (JSON)
--          · 11 'group' or 'tenant' where nothing of that may start until then either, else 'task'
-- returns  { state, { 1 (accepted, also a repeat) or 0 (the fence is stale) } }
local daemon = ARGV[1]
local state = session_state(daemon, ARGV[2])
if state ~= 'OK' then return { state, {} } end
local element, group = ARGV[5], ARGV[6]
local claim = end_claim(daemon, ARGV[3], ARGV[4], group)
if claim == 'live' then
  local now = clock()
  local due = digits(now + ARGV[8])
  local waiting = with_life(element)
  keep_life(element, group, 'attempt', ARGV[7], 'errors', ARGV[10], 'due', due, 'order', due)
  if group ~= '' and ARGV[9] == 'hold' then
    insert(K.lane .. group, waiting)
  else
    call('ZADD', K.delayed, due, waiting)
    wake_at_due()
  end
  if group ~= '' and ARGV[11] == 'group' then limits().close('g' .. group, due) end
  if ARGV[11] == 'tenant' then
    local tenant = tenants().tenant_of(element)
    if #tenant > 8 then tenants().close(tenant, due, now) end
  end
  if group ~= '' and place(group, now) then wake() end
  call('HINCRBY', K.count, 'retried', 1)
  count_end(group)
  write_counts(true)
end
return { 'OK', { claim == 'lost' and 0 or 1 } }
