-- Behind the prelude where tasks of rules that debounce come, are claimed, or go: of a group's waiting tasks of one
-- type the newest replaces the older ones (docs/debounce.md).
--
-- `debouncing` has, for each group, scope and type with a waiting task that may be replaced: since when its burst goes
-- on (16 digits), and the task's entry. Tenants that share a group don't replace each other's tasks. The task is in
-- no other state than waiting: a script that claims, drops or moves it takes it out. A task that was handed back,
-- redriven, or has come to a later stage is not in it, and runs.

-- Nearly always nothing debounces: a script asks that once, and only for tasks with a task state.
local may_debounce

-- So a script makes these only where something does.
local bursts_made
local function bursts()
  if bursts_made then return bursts_made end
  local B = {
    NONE = NEVER, -- a task that waits for a retry: its replacement begins a burst of its own
    OVER = '0000000000000001', -- an operator wants it now: its replacement is due at once
  }
  bursts_made = B

  -- A scope has no spaces.
  function B.name(group, scope, task_type)
    return front_of(group) .. scope .. ' ' .. task_type
  end

  -- The name under which a task may stand in `debouncing`; false where its rule doesn't debounce, or it has come to a
  -- later stage.
  function B.name_of(id)
    local task_state = call('HMGET', K.task_state .. id, 'debounce', 'group', 'scope', 'type', 'stage')
    return task_state[1] and not task_state[5] and B.name(task_state[2], task_state[3], task_state[4])
  end

  function B.enter(name, since, entry)
    call('HSET', K.debouncing, name, since .. entry)
    may_debounce = true
  end

  -- Since when the burst of a task goes on, and its name; nil where the task stands in none.
  function B.of(entry)
    local name = B.name_of(id_of(entry))
    local newest = name and call('HGET', K.debouncing, name)
    if newest and sub(newest, 17) == entry then return sub(newest, 1, 16), name end
    return nil
  end

  -- Ends a task that neither waits nor runs any more, since a newer one of its group and type waits. Only its line in
  -- the history stays, with its scope at the end.
  function B.supersede(entry, group, by, now)
    end_as('superseded', id_of(entry), group, by, now)
  end

  -- The same for a task that waits: it leaves its place first. Returns whether it was there. Nearly always that is at
  -- the young end of its lane, and never further from it than what has come since into its group.
  function B.supersede_waiting(entry, group, by, now)
    if call('ZREM', K.delayed, entry) == 0 and call('LREM', K.lane .. group, 1, entry) == 0 then return false end
    B.supersede(entry, group, by, now)
    call('HINCRBY', K.count, 'queued_grouped', -1)
    -- It may have been the head for which its group was held.
    call('ZREM', K.held, group)
    return true
  end
  return B
end

-- Since when a task's burst goes on, and its name, where that task stands in it.
local function burst_of(entry)
  if not has_state(entry) then return nil end
  if may_debounce == nil then may_debounce = call('EXISTS', K.debouncing) == 1 end
  if may_debounce then return bursts().of(entry) end
end

-- A task doesn't wait any more, or not here.
local function leave_burst(entry)
  local _, name = burst_of(entry)
  if name then call('HDEL', K.debouncing, name) end
end
