#!lua flags=allow-oom
-- move_done: remove from the old partition what `move_in` has written elsewhere.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 the place, as `move_out` takes it · 2 random text, for a salt if there is none yet
--          then two each: group · entry; of plain tasks in order of arrival
-- returns  how many were still there
local now, where, groups, removed = clock(), ARGV[1], {}, 0
local places = {} -- of plain tasks that leave, in order of arrival, how many are older

local function take_plain(entry)
  local older = count_older(K.plain, sequence_of(entry), #places > 0 and places[#places] + 1)
  -- It is gone, or another one came at the same moment, to a partition that was joined with this one.
  if call('LINDEX', K.plain, -older - 1) ~= entry then return call('LREM', K.plain, -1, entry) end
  places[#places + 1] = older
  return 1
end

local function take(group, entry)
  if where == 'paused' then
    call('ZREM', K.resumes, entry)
    return call('HDEL', K.paused, entry)
  end
  if where == 'drains' then return call('HDEL', K.drains, entry) end
  if where == 'outbox' then
    local is_gone = call('LREM', K.outbox, 1, entry)
    call('HINCRBY', K.count, 'outbox_bytes', -is_gone * #entry)
    call('DEL', K.outbox_full)
    return is_gone
  end
  if HISTORY[where] then
    call('HDEL', K.results_new, entry)
    call('HDEL', K.results_old, entry)
    return call('HDEL', HISTORY[where], entry)
  end
  if where == 'schedules' then return forget_schedule(entry) end
  if where == 'by_hand' then
    call('HDEL', K.by_hand, entry)
    return call('ZREM', K.by_hand_ends, entry)
  end
  if where == 'plain' then return take_plain(entry) end
  if where == 'lane' then return call('LREM', K.lane .. group, -1, entry) end
  if where == 'dead' or where == 'letter' then return call('ZREM', K.dead, id_of(entry)) end
  if where == 'delayed' then return leave_aside(entry, group) and 1 or 0 end
  local pool = sub(where, 1, 5) == 'pool_' and call('HGET', K.task_state .. id_of(entry), 'pool') or ''
  return call('ZREM', key_in(where, pool), entry)
end

local function end_here(group, entry)
  local id = id_of(entry)
  leave_burst(entry)
  remove_delay(id)
  forget_expiry(id)
  remove_body(id)
  if where == 'letter' then stay_known(id, now, ARGV[2]) end
  if where == 'dead' or where == 'letter' then
    unpark(group, id)
  else
    call('HINCRBY', K.count, group == '' and 'queued_plain' or 'queued_grouped', -1)
  end
  call('HDEL', K.tasks, id)
  end_state(id)
  call('HINCRBY', K.count, 'taken', -1)
end

local OTHERS = { paused = true, drains = true, outbox = true, schedules = true, by_hand = true }
local is_of_tasks = not OTHERS[where] and not HISTORY[where]
if where ~= 'letter' then
  may_drain, may_limit, may_cap = false, false, false -- no group is drained by a move, nor goes back into a line
end
for i = 3, #ARGV, 2 do
  local group, entry = ARGV[i], ARGV[i + 1]
  if group ~= '' and (is_of_tasks or where == 'paused') then groups[group] = true end
  if take(group, entry) == 1 then
    removed = removed + 1
    if is_of_tasks then end_here(group, entry) end
  end
end
leave_lane(K.plain, places)
for group in pairs(groups) do place(group, now) end
return removed
