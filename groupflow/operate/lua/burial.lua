-- Behind the facts in scripts that end a death or remove a task: what follows then.

-- Lifts the park that this death laid on its group, and only this one.
local function is_parked_behind(group, id)
  local parked = group ~= '' and call('HGET', K.parked, group)
  return parked and cjson.decode(parked)[1] == id
end

local function unpark(group, id)
  if is_parked_behind(group, id) then call('HDEL', K.parked, group) end
end

-- Removes a task for good. Its line in the history (JSON) stays, with its scope at the end.
local function erase(id, group, line, now)
  remove_body(id)
  end_with(id, group, string.sub(line, 1, -2) .. ',"' .. scope_of(id) .. '"]', now)
  call('HINCRBY', K.count, 'dropped', 1)
end

-- The same for a dead letter, and its group goes on.
local function forget(id, line, now)
  local group = call('HGET', K.task_state .. id, 'group') or ''
  call('ZREM', K.dead, id)
  erase(id, '', line, now) -- it had ended as it died
  unpark(group, id)
  if group ~= '' and place(group, now) then wake_for(group) end
end
