-- Behind the prelude where tasks come to wait for a delay, their own or that of a task in front: which do, until when,
-- and whether there is room for them.

local delayed_bytes = tonumber(call('HGET', K.count, 'delayed_bytes') or nil) or 0

-- The task whose delay holds what comes into a lane now, and until when; nil for none. The newest there tells: it has a
-- delay of its own, or its task state notes whose delay it came behind. A task that isn't in `late` any more was run,
-- dropped, or is due. Where nothing is delayed at all, the script needs no look. `leaving` is an entry that counts as
-- gone.
local function delay_ahead(group, now, leaving)
  if group == '' or delayed_bytes == 0 then return nil end
  local newest = call('LINDEX', K.lane .. group, 0)
  if leaving and newest == leaving then newest = call('LINDEX', K.lane .. group, 1) end
  if not newest or not has_state(newest) then return nil end
  local id = id_of(newest)
  local facts = call('HMGET', K.task_state .. id, 'late_for', 'due')
  local is_of_leaving = leaving and facts[1] == id_of(leaving)
  local last = tonumber(facts[1] and not is_of_leaving and call('ZSCORE', K.late, facts[1]) or nil)
  if last and last > now then return facts[1], last end
  local own = tonumber(facts[2] or nil)
  if own and own > now and call('ZSCORE', K.late, id) then return id, own end
  return nil
end

-- Whether a task of so many bytes exceeds what may wait for delays.
local function has_no_room(bytes, most) return delayed_bytes + bytes + DELAY_COSTS > most end

-- Whether a task waits only for the quiet that its rule asks for.
local function waits_for_quiet(id)
  local facts = call('HMGET', K.task_state .. id, 'latest', 'due')
  return facts[1] and facts[2] and facts[2] <= facts[1]
end

-- A task waits for a delay from here on: that of `whose`, until `last`.
local function add_delay(id, bytes, whose, last)
  delayed_bytes = delayed_bytes + bytes + DELAY_COSTS
  call('HSET', K.task_state .. id, 'late_for', whose)
  call('ZADD', K.late, digits(last), id)
  if whose == id then wake_at_due(K.late, last) end -- any other's is known
  put_on('delayed_bytes', id, bytes + DELAY_COSTS)
end
