-- Behind what keeps messages, delays and debounces: how a message's task gets to its place.
--
-- Nearly all go *straight* to the young end of their lane or list, and nothing else is noted of them. A message with a
-- priority, a delay, a pool or a rule that debounces, a large one, one behind something delayed, and one that is dead
-- on arrival makes a *detour*: its task has a task state. So does one whose rule bounds how many may wait in its group,
-- for a look at the lane: its task has a task state only for one of the other reasons, or if the group is full. ARGV 4
-- and 5 are as in `enqueue.lua`.

local sequence -- of the message that is looked at

-- Puts a task behind all others of its group. Returns whether something of that may be claimed now.
local function enter_lane(entry, group, has_replaced)
  local is_head = call('LPUSH', K.lane .. group, entry) == 1
  local may_start = is_head or has_replaced or (is_limiting() and limits().may_fill(group))
  return may_start and place(group, now)
end

local function enter_plain(entry, order, goes_straight)
  if waits_in_line(entry, order, false, nil, now) then return end
  if goes_straight then
    call('LPUSH', K.plain, entry)
  else
    call('ZADD', K.ordered, digits(order), entry)
  end
end

-- A script makes these only where something makes a detour.
local detours_made
local function detours()
  if detours_made then return detours_made end
  local D = {}
  detours_made = D
  local most_delayed = tonumber(ARGV[4])

  -- The burst that a message of a rule that debounces joins: its name, and since when it goes on; the waiting task that
  -- the message replaces, if any; until when it waits for quiet, and until when at the latest (µs).
  local function burst_met(m)
    local name = bursts().name(m.group, m.scope, m.facts[1])
    local newest = call('HGET', K.debouncing, name)
    local since = newest and sub(newest, 1, 16) or bursts().NONE
    if since == bursts().NONE then since = digits(now) end
    local latest = tonumber(since) + m.facts[6]
    return {
      name = name, since = since, replaced = newest and sub(newest, 17), latest = latest,
      quiet = math.min(now + m.facts[5], latest), room = 0,
    }
  end

  -- Whether as many tasks wait in a message's group as its rule lets. What stands aside is not in the lane, and doesn't
  -- count. A message that replaces a waiting task takes the place of that.
  local function finds_group_full(m, burst)
    local bound = m.max_queued
    return bound and not (burst and burst.replaced) and call('LLEN', K.lane .. m.group) >= bound
  end

  -- Finds out what holds a task: when it may run by itself (`due`), and whose delay it waits for until when (`whose`,
  -- `last`). Sets `is_full` where its group is, and `is_crowded_out` where there is no room for a delay.
  local function look_ahead(m)
    local asked = m.delay ~= '0' and (now + m.delay)
    m.due = asked
    if m.reason ~= '' then return end -- dead already
    local burst = m.facts and m.facts[5] and m.group ~= '' and burst_met(m)
    m.is_full = finds_group_full(m, burst)
    if m.is_full then return end
    if burst and burst.quiet > (asked or now) then m.due = burst.quiet end
    local ahead, last = delay_ahead(m.group, now, burst and burst.replaced)
    m.burst, m.whose, m.last = burst, ahead, last
    if m.due and (not last or m.due > last or m.is_aside) then m.whose, m.last = m.id, m.due end
    if burst and burst.replaced and delayed_bytes > 0 then -- what it replaces makes room for it
      burst.room = tonumber(call('HGET', K.task_state .. id_of(burst.replaced), 'delayed_bytes') or 0)
    end
    if not m.whose or not has_no_room(m.bytes - (burst and burst.room or 0), most_delayed) then return end
    m.is_crowded_out = asked or (ahead and not waits_for_quiet(ahead))
    m.due = asked
    -- Where no message asked for this delay, the task waits as all without one do, rather than die of it.
    if not m.is_crowded_out then m.whose = nil end
  end

  -- A task is of a pool: only its pullers claim it.
  local function note_pool(id, pool)
    call('HSET', K.task_state .. id, 'pool', pool)
    if call('HSETNX', K.pools, pool, digits(now)) == 1 then pools_known = nil end
  end

  local function note(m)
    local task_state, facts = K.task_state .. m.id, m.facts
    call('HSET', task_state, 'sequence', digits(sequence), 'group', m.group, 'priority', m.priority)
    if not facts then return end
    call('HSET', task_state, 'type', facts[1], 'tenant', facts[2], 'scope', m.scope)
    if facts[3] and facts[3] ~= '' then call('HSET', task_state, 'rule', facts[3]) end
    if facts[10] then call('HSET', task_state, 'origin', cjson.encode(facts[10])) end
    m.pool = facts[4] ~= '' and facts[4] or nil
    if m.pool then note_pool(m.id, m.pool) end
  end

  -- A task is the newest of its burst, and the one before it ends. Sets `has_replaced` where there was one.
  local function take_over(m)
    local burst, task_state = m.burst, K.task_state .. m.id
    call('HSET', task_state, 'debounce', m.facts[5])
    local most = tonumber(m.facts[9] or nil)
    local updating = most and burst.replaced and call('HGET', K.task_state .. id_of(burst.replaced), 'updating') or nil
    -- What runs goes on where this one couldn't start behind it: it has a delay of its own.
    if most and not m.due then updating = bursts().renew(burst.name, m.id, m.group, updating, most, now) end
    if most then call('HSET', task_state, 'newest', NEVER) end
    if updating then call('HSET', task_state, 'updating', updating) end
    if m.due then call('HSET', task_state, 'latest', digits(burst.latest)) end
    m.has_replaced = burst.replaced and bursts().supersede_waiting(burst.replaced, m.group, m.id, now)
    if m.has_replaced then delayed_bytes = delayed_bytes - burst.room end
    bursts().enter(burst.name, burst.since, m.entry)
  end

  local function bury(m)
    local task_state = K.task_state .. m.id
    if m.is_crowded_out or m.is_full then
      local reason, kind = ARGV[5], 'crowded out'
      if m.is_full then reason, kind = 'its group is full', 'group full' end
      -- A redrive gives it the rest of its delay.
      call('HSET', task_state, 'reason', reason, 'kind', kind, 'attempts', 0, 'door', 0,
        'standing', m.is_aside and 'aside' or 'hold')
      if not m.facts then
        local task_type, tenant = facts_in_envelope(m.id)
        call('HSET', task_state, 'type', task_type, 'tenant', tenant, 'scope', m.scope)
      end
    else
      call('HSET', task_state, 'reason', m.reason, 'kind', 'rejected', 'errors', m.errors, 'attempts', 0, 'door', 1)
    end
    add_letter(m.id, now)
    note_end('dead', m.id, m.group, now, function() return { reason = call('HGET', task_state, 'reason') } end)
  end

  -- Returns whether something may be claimed now.
  local function enter(m)
    local entry, group = m.entry, m.group
    if m.start_by then
      call('ZADD', K.expiring, digits(m.start_by), m.id)
      wake_at_due(K.expiring, m.start_by)
      may_expire = true
    end
    if m.whose then add_delay(m.id, m.bytes, m.whose, m.last) end
    if m.due and (group == '' or m.is_aside) then
      stand_aside(entry, group, m.due)
      return m.has_replaced and place(group, now)
    end
    if group ~= '' then return enter_lane(entry, group, m.has_replaced) end
    if m.pool then
      if waits_in_line(entry, sequence - m.priority, false, m.pool, now) then return false end
      call('ZADD', index_of('ordered', m.pool), digits(sequence - m.priority), entry)
      tell('pool')
      return false
    end
    -- From the index, one that expires leaves at little cost, at any place.
    enter_plain(entry, sequence - m.priority, m.priority == '0' and not m.start_by)
    return true
  end

  -- The message at place `i` of a list, as a table: `priority` and `delay` are µs, as text; `bytes` are its envelope's,
  -- which alone has the `facts` where they are nil here. Its task's id may be another.
  local function message_at(list, i, id)
    local facts = list[i + 8] ~= '' and cjson.decode(list[i + 8]) or nil
    local max_queued, start_by
    if type(facts) == 'number' then
      facts, max_queued = nil, facts
    elseif facts then
      max_queued = facts[7]
      start_by = (facts[8] or 0) > 0 and now + facts[8] or nil
    end
    return {
      id = id, group = list[i + 1], priority = list[i + 2], delay = list[i + 3], is_aside = list[i + 4] == 'aside',
      reason = list[i + 5], errors = list[i + 6], bytes = laid(list[i + 7]) or #list[i + 7],
      facts = facts, max_queued = max_queued, start_by = start_by, scope = list[i + 9],
    }
  end

  -- A message's task comes to wait, or is a letter (`is_buried`). Returns what is known of the message, and whether
  -- something may be claimed now.
  function D.take(list, i, id)
    local m = message_at(list, i, id)
    look_ahead(m)
    m.is_buried = m.is_crowded_out or m.is_full or m.reason ~= ''
    local lives = m.facts or m.whose or m.is_full or m.priority ~= '0'
    m.entry = digits(sequence) .. (lives and '+' or '.') .. m.id
    if lives then note(m) end
    if m.burst and not m.is_crowded_out then take_over(m) end
    if m.due then call('HSET', K.task_state .. m.id, 'due', digits(m.due), 'order', digits(m.due)) end
    if m.is_buried then return m, bury(m) end
    return m, enter(m)
  end
  return D
end
