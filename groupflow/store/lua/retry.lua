#!lua flags=allow-oom
-- retry: the attempt failed, and there will be another one. The task waits for its time: in a group
-- either as the head, which holds those behind it, or aside, which lets them go on. Where its rule debounces,
-- and a newer one of its group and type waits, there will be none: that one replaces it.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session · 3 slot · 4 fence · 5 element · 6 group · 7 next attempt's number
--          · 8 delay (µs) · 9 'hold' or 'step-aside' · 10 the errors of its attempts (JSON)
--          · 11 'group' or 'tenant' where nothing of that may start until then either, else 'task'
-- returns  { state, { 1 (accepted, also a repeat), 3 (accepted, and superseded) or 0 (the fence is stale) } }
local daemon = ARGV[1]
local state = session_state(daemon, ARGV[2])
if state ~= 'OK' then return { state, {} } end
local element, group = ARGV[5], ARGV[6]
local claim = end_claim(daemon, ARGV[3], ARGV[4], group)
local is_replaced = false
if claim == 'live' then
  local now, id = clock(), id_of(element)
  local due = digits(now + ARGV[8])
  local waiting = with_life(element)
  local name = group ~= '' and bursts().name_of(id)
  local newest = name and call('HGET', K.debouncing, name)
  local other = newest and sub(newest, 17)
  is_replaced = other and arrival_of(other) > arrival_of(element)
  if is_replaced then
    bursts().supersede(element, group, id_of(other), now)
  else
    if other then bursts().supersede_waiting(other, group, id, now) end
    keep_life(element, group, 'attempt', ARGV[7], 'errors', ARGV[10], 'due', due, 'order', due)
    if name then
      call('HDEL', K.life .. id, 'latest')
      bursts().enter(name, bursts().NONE, waiting)
    end
    if group ~= '' and ARGV[9] == 'hold' then
      insert(K.lane .. group, waiting)
    else
      call('ZADD', K.delayed, due, waiting)
      wake_at_due()
    end
  end
  if group ~= '' and ARGV[11] == 'group' then limits().close('g' .. group, due) end
  if ARGV[11] == 'tenant' then
    local tenant = tenants().tenant_of(element)
    if #tenant > 8 then tenants().close(tenant, due, now) end
  end
  if group ~= '' and place(group, now) then wake() end
  if not is_replaced then call('HINCRBY', K.count, 'retried', 1) end
  count_end(group)
  write_counts(not is_replaced)
end
return { 'OK', { claim == 'lost' and 0 or is_replaced and 3 or 1 } }
