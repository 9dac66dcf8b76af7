#!lua flags=allow-oom
-- defer: the daemon has no handler of the task's type. The task waits, in its place, for a daemon that has one: for a
-- moment where a living daemon announces the type; else until no living daemon has known the type for so long. Then it
-- is dead, and so is each task of that type that is claimed next. No attempt counts.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session · 3 slot · 4 fence · 5 entry · 6 group · 7 type · 8 for how long a type may be unknown
--          (µs) · 9 and on: what `give_up` takes (`failing.lua`)
-- returns  { state, { 1 (accepted, also a repeat), 7 (accepted: no living daemon knows the type), 8 (accepted, and
--          dead), 5 (accepted, and cancelled), 6 (accepted, and superseded) or 0 (the fence is stale) } }
local MOMENT = 1000000 -- µs
local MOST_CLOCKS = 1000 -- types come from strangers
local KEPT = 10 -- a clock that has met no task for so many times its length starts again

local daemon, task_type, within = ARGV[1], ARGV[7], tonumber(ARGV[8])

local function is_known_elsewhere()
  for _, name in ipairs(call('ZRANGE', K.daemons, 0, 999)) do
    if name ~= daemon and call('HEXISTS', K.types .. name, task_type) == 1 then return true end
  end
  return false
end

local function is_forgotten(name, since, now)
  return now - since > KEPT * within and call('EXISTS', K.unknown_tasks .. name) == 0
end

-- Whether there is room for another clock; looks at the oldest ones, which may be forgotten.
local function has_room(now)
  if call('ZCARD', K.unknown) < MOST_CLOCKS then return true end
  local oldest = call('ZRANGE', K.unknown, 0, 9, 'WITHSCORES')
  for i = 1, #oldest, 2 do
    if is_forgotten(oldest[i], tonumber(oldest[i + 1]), now) then call('ZREM', K.unknown, oldest[i]) end
  end
  return call('ZCARD', K.unknown) < MOST_CLOCKS
end

-- When the type's clock runs out, and whether it has one. Where there are too many clocks, the task's arrival began one.
local function end_of_clock(entry, now)
  local since = tonumber(call('ZSCORE', K.unknown, task_type) or nil)
  if since and since > 0 and not is_forgotten(task_type, since, now) then return since + within, true end
  if not since and not has_room(now) then return sequence_of(entry) + within, false end
  call('ZADD', K.unknown, digits(now), task_type)
  return now + within, true
end

local function wait(entry, group, due, now)
  local waiting = with_state(entry)
  keep_state(entry, group, 'due', digits(due))
  if group ~= '' then
    insert(K.lane .. group, waiting)
    if place(group, now) then wake_for(group) end
  else
    stand_aside(waiting, group, due)
  end
  count_ends(group, 1, true)
end

return settle(function(entry, group, now)
  local id, cancelled = id_of(entry), cancel_instead(entry, group, now)
  if cancelled then return cancelled end
  if is_known_elsewhere() then
    if call('ZADD', K.unknown, 'XX', 'CH', 0, task_type) == 1 then tell('due') end
    wait(entry, group, now + MOMENT, now)
    return 1
  end
  local due, has_clock = end_of_clock(entry, now)
  if due <= now then
    -- It has run out for those that come soon as well.
    if has_clock then call('ZADD', K.unknown, digits(now - within), task_type) end
    give_up(entry, group, 9, now)
    return 8
  end
  if has_clock then
    call('HSET', K.task_state .. id, 'unknown', task_type)
    call('ZADD', K.unknown_tasks .. task_type, sub(entry, 1, 16), id)
  end
  wait(entry, group, due, now)
  return 7
end)
