-- Behind the prelude where tasks of rules that debounce come, are claimed, or go: of a group's waiting tasks of
-- one type the newest replaces the older ones (docs/debounce.md).
--
-- `debouncing` has, for each group, scope and type of which a task waits that may be replaced, since when its burst
-- goes on (16 digits) and that task's element. Where tenants have a group in common, none replaces what is
-- another's. It is in no other state than waiting: who claims, drops or moves it takes it out. What was handed
-- back, redriven, or has come to a later stage is not in it, and runs.

-- Nearly always nothing debounces: that is asked once a script, and of tasks with a life only.
local may_debounce
local function is_debouncing()
  if may_debounce == nil then may_debounce = call('EXISTS', K.debouncing) == 1 end
  return may_debounce
end

-- So these are made only where something does.
local bursts_made
local function bursts()
  if bursts_made then return bursts_made end
  local B = {
    NONE = NEVER, -- a task that waits for a retry: whatever replaces it begins a burst of its own
    OVER = '0000000000000001', -- somebody wants it now: whatever replaces it is due at once
  }
  bursts_made = B

  -- A scope has no spaces.
  function B.name(group, scope, task_type)
    return format('%04d', #group) .. group .. scope .. ' ' .. task_type
  end

  -- Under which name a task may stand in `debouncing`; false where its rule doesn't debounce, or it has come to a
  -- later stage.
  function B.name_of(id)
    local life = call('HMGET', K.life .. id, 'debounce', 'group', 'scope', 'type', 'stage')
    return life[1] and not life[5] and B.name(life[2], life[3], life[4])
  end

  function B.enter(name, since, element)
    call('HSET', K.debouncing, name, since .. element)
    may_debounce = true
  end

  -- Since when the burst goes on in which a task stands, and its name.
  function B.of(element)
    local name = B.name_of(id_of(element))
    local newest = name and call('HGET', K.debouncing, name)
    if newest and sub(newest, 17) == element then return sub(newest, 1, 16), name end
    return nil
  end

  -- A waiting task leaves its place; whether it was there. Nearly always that is at the young end of its lane, and
  -- never further from it than what has come since into its group.
  local function leave_place(element, group)
    return call('ZREM', K.delayed, element) == 1 or call('LREM', K.lane .. group, 1, element) == 1
  end

  -- A task that neither waits nor runs any more ends, since a newer one of its group and type waits: what is left
  -- of it is its line in the history, which its scope ends.
  function B.supersede(element, group, by, now)
    local id = id_of(element)
    local life = call('HMGET', K.life .. id, 'type', 'attempt', 'crashes', 'scope', 'lost_leases')
    local died, lost_leases = tonumber(life[3] or 0), tonumber(life[5] or 0)
    if lost_leases > 0 then died = { died - lost_leases, lost_leases } end
    local line = cjson.encode({
      'superseded', life[1], group, tonumber(life[2] or 1), died, by, life[4],
    })
    remove_delay(id)
    call('HDEL', K.tasks, id)
    end_life(id)
    call('HSET', K.history_new, id, digits(now) .. line)
    call('HINCRBY', K.count, 'superseded', 1)
  end

  -- The same for one that waits: it leaves its place first. Whether it was there.
  function B.supersede_waiting(element, group, by, now)
    if not leave_place(element, group) then return false end
    B.supersede(element, group, by, now)
    call('HINCRBY', K.count, 'queued_grouped', -1)
    -- It may have been the head that its group was held for.
    call('ZREM', K.held, group)
    return true
  end
  return B
end

-- Since when a task's burst goes on, and its name, where that task is the one that stands in it.
local function burst_of(element)
  if not has_life(element) or not is_debouncing() then return nil end
  return bursts().of(element)
end

-- A task doesn't wait any more, or not here.
local function leave_burst(element)
  local _, name = burst_of(element)
  if name then call('HDEL', K.debouncing, name) end
end
