-- Behind the prelude where tasks of rules that debounce come, are claimed, or go: of a group's waiting tasks of one
-- type the newest replaces the older ones (docs/debounce.md). A rule with `newest` debounces without any quiet.
--
-- `debouncing` has, for each group, scope and type with a waiting task that may be replaced: since when its burst goes
-- on (16 digits), and the task's entry. Tenants that share a group don't replace each other's tasks. The task is in
-- no other state than waiting: a script that claims, drops or moves it takes it out. A task that was handed back,
-- redriven, or has come to a later stage is not in it, and runs.
--
-- With `newest = "running"` the task that runs makes way, too. `newest` in its task state is the fence of the claim that
-- took it out of `debouncing`: only that claim makes way. The newer task gets `updating`: since when (16 digits) such
-- tasks have made way with none in between that came to its end, and the id of the last one that was asked to.

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
  -- later stage. And `newest` of its task state, if any.
  function B.name_of(id)
    local task_state = call('HMGET', K.task_state .. id, 'debounce', 'group', 'scope', 'type', 'stage', 'newest')
    local may_stand = task_state[1] and not task_state[5]
    return may_stand and B.name(task_state[2], task_state[3], task_state[4]), task_state[6]
  end

  function B.enter(name, since, entry)
    call('HSET', K.debouncing, name, since .. entry)
    may_debounce = true
  end

  -- Since when the burst of a task goes on, its name, and whether it makes way when it runs; nil where the task stands
  -- in none.
  function B.of(entry)
    local name, makes_way = B.name_of(id_of(entry))
    local newest = name and call('HGET', K.debouncing, name)
    if newest and sub(newest, 17) == entry then return sub(newest, 1, 16), name, makes_way end
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
    if not leave_aside(entry, group) and call('LREM', K.lane .. group, 1, entry) == 0 then return false end
    B.supersede(entry, group, by, now)
    call('HINCRBY', K.count, 'queued_grouped', -1)
    -- It may have been the head for which its group was held.
    call('ZREM', K.held, group)
    return true
  end

  -- The task of that name that runs in a group, if it is to make way.
  local function running_of(name, group)
    local lock = call('GET', K.lock .. group)
    local slot = lock and string.match(lock, '[^ ]+$')
    local checkpoint = lock and call('HGET', K.worker .. sub(lock, 18, -(#slot + 2)), slot)
    local claim = checkpoint and claim_of(checkpoint)
    if not claim or not has_state(claim.entry) then return nil end
    local id = id_of(claim.entry)
    local found, fence = B.name_of(id)
    return found == name and fence == claim.fence and id or nil
  end

  -- What `updating` says of a task that runs, if the task before it did make way.
  local function updating_of(id)
    local updating = call('HGET', K.task_state .. id, 'updating')
    local before = updating and sub(updating, 17)
    local line = before and (call('HGET', K.history_new, before) or call('HGET', K.history_old, before))
    return line and string.find(line, '["superseded"', 17, true) == 17 and sub(updating, 1, 16) or nil
  end

  -- A task has come that may start as soon as the one of its name that runs has ended: asks that to make way, unless
  -- others have done so for `most` (µs). `before` is what `updating` said of the waiting task that it replaces.
  function B.renew(name, id, group, before, most, now)
    local running = running_of(name, group)
    if not running or (before and sub(before, 17) == running) then return before end
    local since = updating_of(running) or digits(now)
    if now - since >= most then return nil end
    if call('HSETNX', K.cancels, running, cjson.encode(id)) == 1 then tell('cancel:' .. running) end
    may_cancel = true
    return since .. running
  end
  return B
end

-- Since when a task's burst goes on, its name, and whether it makes way when it runs, where that task stands in it.
local function burst_of(entry)
  if not has_state(entry) then return nil end
  if may_debounce == nil then may_debounce = call('EXISTS', K.debouncing) == 1 end
  if may_debounce then return bursts().of(entry) end
end

-- A task doesn't wait any more, or not here. `fence` is that of its claim, if that is why.
local function leave_burst(entry, fence)
  local _, name, makes_way = burst_of(entry)
  if name then call('HDEL', K.debouncing, name) end
  if fence and makes_way then call('HSET', K.task_state .. id_of(entry), 'newest', fence) end
end
