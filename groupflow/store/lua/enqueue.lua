#!lua
-- enqueue: make a batch of messages durable, in the order given. Each becomes a waiting task or a
-- dead letter; one whose id is known already (waiting, running, dead, or ended within the dedup
-- window) is dropped as a duplicate, so a batch may be run again.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 the daemon, which claims right behind this call, or '' · then nine a message:
--          id · group ('' = plain) · priority (µs, may be negative) · delay (µs)
--          · 'aside' where a delay lets the group go on, else '' · reason of a dead letter ('' = a
--          task) · its errors (JSON) · envelope and body · its type and tenant (JSON) where they are to
--          be known without reading that: of a dead letter, of a large message; else ''
-- returns  { tasks that wait in all, one row of 1 (taken) or 0 (duplicate) a message }
local now = clock()
local arrival = math.max(now, (tonumber(call('HGET', K.count, 'arrival') or 0)) + 1)
local old_history = call('EXISTS', K.history_old) == 1
local taken, runnable = {}, false
local plain, grouped, buried, accepted = 0, 0, 0, 0

local function is_known(id)
  if call('HEXISTS', K.history_new, id) == 1 then return true end
  return old_history and call('HEXISTS', K.history_old, id) == 1
end

for i = 2, #ARGV, 9 do
  local id, group, priority, delay = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local reason = ARGV[i + 5]
  if is_known(id) or call('HSETNX', K.tasks, id, ARGV[i + 7]) == 0 then
    taken[#taken + 1] = 0
  else
    taken[#taken + 1] = 1
    accepted = accepted + 1
    local straight = priority == '0' and delay == '0' and reason == ''
    local lives = not straight or ARGV[i + 8] ~= ''
    local element = digits(arrival) .. (lives and '+' or '.') .. id
    if lives then
      call('HSET', K.life .. id, 'arrival', digits(arrival), 'group', group, 'priority', priority)
    end
    if ARGV[i + 8] ~= '' then
      local facts = cjson.decode(ARGV[i + 8])
      call('HSET', K.life .. id, 'type', facts[1], 'tenant', facts[2])
    end
    if reason ~= '' then
      buried = buried + 1
      call('HSET', K.life .. id, 'reason', reason, 'errors', ARGV[i + 6], 'attempts', 0, 'door', 1)
      call('ZADD', K.dead, digits(now), id)
    else
      if group == '' then plain = plain + 1 else grouped = grouped + 1 end
      local due = delay ~= '0' and (now + delay)
      if due then call('HSET', K.life .. id, 'due', digits(due), 'order', digits(due)) end
      if due and (group == '' or ARGV[i + 4] == 'aside') then
        call('ZADD', K.delayed, digits(due), element)
        wake_at_due()
      elseif group ~= '' then
        if call('LPUSH', K.lane .. group, element) == 1 and place(group, now) then runnable = true end
      elseif straight then
        call('LPUSH', K.plain, element)
        runnable = true
      else
        call('ZADD', K.ordered, digits(arrival - priority), element)
        runnable = true
      end
    end
    arrival = arrival + 1
  end
end

if accepted > 0 then
  call('HSET', K.count, 'arrival', digits(arrival - 1))
  call('HINCRBY', K.count, 'taken', accepted)
  if plain > 0 then call('HINCRBY', K.count, 'queued_plain', plain) end
  if grouped > 0 then call('HINCRBY', K.count, 'queued_grouped', grouped) end
  if buried > 0 then call('HINCRBY', K.count, 'buried', buried) end
end
if accepted < #taken then call('HINCRBY', K.count, 'duplicates', #taken - accepted) end
-- Who writes this claims right behind it, so only others have to be told.
if runnable and (call('ZCARD', K.daemons) > 1 or not call('ZSCORE', K.daemons, ARGV[1])) then
  wake()
end
local queued = call('HMGET', K.count, 'queued_plain', 'queued_grouped')
return { (tonumber(queued[1]) or 0) + (tonumber(queued[2]) or 0), taken }
