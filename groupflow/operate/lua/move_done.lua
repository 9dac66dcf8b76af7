#!lua flags=allow-oom
-- move_done: remove from the old partition what `move_in` has written elsewhere.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 the place, as `move_out` takes it · then two each: group · element
-- returns  how many were still there
local now, where, groups, removed = clock(), ARGV[1], {}, 0

local function take(group, element)
  if where == 'paused' then return call('HDEL', K.paused, element) end
  if HISTORY[where] then return call('HDEL', HISTORY[where], element) end
  if where == 'schedules' then return forget_schedule(element) end
  if where == 'by_hand' then
    call('HDEL', K.by_hand, element)
    return call('ZREM', K.by_hand_ends, element)
  end
  if where == 'plain' then return call('LREM', K.plain, -1, element) end
  if where == 'lane' then return call('LREM', K.lane .. group, -1, element) end
  if where == 'dead' then return call('ZREM', K.dead, id_of(element)) end
  local pool = sub(where, 1, 5) == 'pool_' and call('HGET', K.life .. id_of(element), 'pool') or ''
  return call('ZREM', key_in(where, pool), element)
end

local function end_here(group, element)
  local id = id_of(element)
  leave_burst(element)
  remove_delay(id)
  remove_body(id)
  if where == 'dead' then
    unpark(group, id)
  else
    call('HINCRBY', K.count, group == '' and 'queued_plain' or 'queued_grouped', -1)
  end
  call('HDEL', K.tasks, id)
  end_life(id)
  call('HINCRBY', K.count, 'taken', -1)
end

local is_of_tasks = where ~= 'paused' and where ~= 'schedules' and where ~= 'by_hand' and not HISTORY[where]
for i = 2, #ARGV, 2 do
  local group, element = ARGV[i], ARGV[i + 1]
  if group ~= '' and (is_of_tasks or where == 'paused') then groups[group] = true end
  if take(group, element) == 1 then
    removed = removed + 1
    if is_of_tasks then end_here(group, element) end
  end
end
for group in pairs(groups) do place(group, now) end
return removed
