-- Behind the ids and what delays in the scripts that take messages in: each becomes a waiting task or a
-- dead letter, or is known already. ARGV 1 to 5 are as in `enqueue.lua`.

local now, arrival, any_renamed

-- Whether an id that is known belongs to this scope. Entries of versions that knew no scopes belong to all.
local function is_ours(id, scope)
  local line = call('HGET', K.history_new, id) or (old_history and call('HGET', K.history_old, id))
  if line then
    local owner = string.match(line, '"(%x*)"%]$')
    return owner == nil or owner == scope
  end
  local died = call('ZSCORE', K.dead, id)
  if died and now - died > tonumber(ARGV[2]) then return false end
  return is_of_scope(id, scope)
end

local function is_known_as_ours(id, scope)
  return (has_ended(id) or call('HEXISTS', K.tasks, id) == 1) and is_ours(id, scope)
end

-- Keeps the message under the next of its derived ids. That one is free, as nobody could name it before,
-- but for letters that have outlived what `renamed` knew of them: past a few, the clock gives a number.
local function keep_renamed(scope, id, newest, envelope)
  call('HSETNX', K.segments, 'salt', ARGV[3])
  for step = 1, FAMILY + 1 do
    local number = step <= FAMILY and newest + step or now
    local derived = derived_id(scope, id, number)
    if not has_ended(derived) and call('HSETNX', K.tasks, derived, envelope) == 1 then
      call('HSET', K.renamed, family(scope, id), plain_digits(number))
      any_renamed = true
      return derived
    end
    if is_ours(derived, scope) then return nil end
  end
  error('no derived id of ' .. id .. ' is free: did somebody change keys by hand?')
end

-- Keeps a message's envelope, and returns the id that its task has; nil for a duplicate.
local function keep(id, scope, envelope)
  local newest = any_renamed and tonumber(call('HGET', K.renamed, family(scope, id)) or nil) or 0
  local function is_it(derived) return is_known_as_ours(derived, scope) end
  if newest > 0 and any_derived(scope, id, newest, is_it) then return nil end
  if not has_ended(id) and call('HSETNX', K.tasks, id, envelope) == 1 then return id end
  if is_ours(id, scope) then return nil end
  return keep_renamed(scope, id, newest, envelope)
end

-- A task is of a pool: nobody but its workers claims it.
local function note_pool(id, pool, since)
  call('HSET', K.life .. id, 'pool', pool)
  if call('HSETNX', K.pools, pool, digits(since)) == 1 then pools_known = nil end
end

-- What a message of a rule that debounces comes upon: its burst's name, and since when that goes on; the waiting
-- task that it replaces, where there is one; until when it waits for quiet, and until when at the latest (µs).
local function burst_met(group, scope, facts)
  local name = burst_of(group, scope, facts[1])
  local newest = call('HGET', K.debouncing, name)
  local since = newest and sub(newest, 1, 16) or NO_BURST
  if since == NO_BURST then since = digits(now) end
  local latest = tonumber(since) + facts[6]
  return {
    name = name, since = since, replaced = newest and sub(newest, 17), latest = latest,
    quiet = math.min(now + facts[5], latest),
  }
end

-- Its task is the newest of its burst, and the one before it ends. Returns whether there was one.
local function take_over(burst, element, group, room)
  local has_replaced = burst.replaced and supersede_waiting(burst.replaced, group, id_of(element), now)
  if has_replaced then delayed_bytes = delayed_bytes - room end
  enter_burst(burst.name, burst.since, element)
  return has_replaced
end

-- Takes in the messages that a list has from its place `first` on, ten arguments each, in that order.
-- Returns what `enqueue.lua` answers.
local function take_in(list, first)
  now = clock()
  if #list >= first then note_first_epoch(now) end
  arrival = math.max(now, (tonumber(call('HGET', K.count, 'arrival') or 0)) + 1)
  any_renamed = call('EXISTS', K.renamed) == 1
  local taken, crowded, runnable = {}, {}, false
  local most_delayed = tonumber(ARGV[4])
  local plain, grouped, buried, accepted, superseded = 0, 0, 0, 0, 0

  for i = first, #list, 10 do
    local group, priority, delay = list[i + 1], list[i + 2], list[i + 3]
    local reason = list[i + 5]
    local id = keep(list[i], list[i + 9], list[i + 7])
    if not id then
      taken[#taken + 1] = 0
    else
      taken[#taken + 1] = id == list[i] and 1 or id
      accepted = accepted + 1
      local bytes = #list[i + 7]
      local facts = list[i + 8] ~= '' and cjson.decode(list[i + 8])
      local asked = delay ~= '0' and (now + delay)
      local due, whose, last, burst, room, is_crowded_out = asked, nil, nil, nil, 0, false
      if reason == '' and (facts or delayed_bytes > 0) then -- else nothing delays it
        burst = facts and facts[5] and group ~= '' and burst_met(group, list[i + 9], facts)
        if burst and burst.quiet > (asked or now) then due = burst.quiet end
        local ahead
        ahead, last = delay_ahead(group, now, burst and burst.replaced)
        whose = ahead
        if due and (not last or due > last or list[i + 4] == 'aside') then whose, last = id, due end
        if burst and burst.replaced and delayed_bytes > 0 then -- what it replaces makes room for it
          room = tonumber(call('HGET', K.life .. id_of(burst.replaced), 'delayed_bytes') or 0)
        end
        is_crowded_out = whose ~= nil and has_no_room(bytes - room, most_delayed)
        if is_crowded_out and not asked and (not ahead or waits_for_quiet(ahead)) then
          -- Nobody asked for this delay: rather than to die of it, it waits as all do that have none.
          whose, due, is_crowded_out = nil, false, false
        end
        if is_crowded_out then due = asked end
      end
      local is_late = whose ~= nil
      local straight = priority == '0' and not is_late and reason == ''
      local lives = not straight or list[i + 8] ~= ''
      local element = digits(arrival) .. (lives and '+' or '.') .. id
      if lives then
        call('HSET', K.life .. id, 'arrival', digits(arrival), 'group', group, 'priority', priority)
      end
      local pool
      if facts then
        call('HSET', K.life .. id, 'type', facts[1], 'tenant', facts[2], 'scope', list[i + 9])
        if facts[3] and facts[3] ~= '' then call('HSET', K.life .. id, 'rule', facts[3]) end
        pool = facts[4] ~= '' and facts[4] or nil
        if pool then note_pool(id, pool, now) end
      end
      local has_replaced = false
      if burst and not is_crowded_out then
        call('HSET', K.life .. id, 'debounce', facts[5])
        if due then call('HSET', K.life .. id, 'latest', digits(burst.latest)) end
        has_replaced = take_over(burst, element, group, room)
        if has_replaced then superseded = superseded + 1 end
      end
      if due then call('HSET', K.life .. id, 'due', digits(due), 'order', digits(due)) end
      if reason ~= '' or is_crowded_out then
        buried = buried + 1
        if is_crowded_out then
          crowded[#crowded + 1] = #taken
          -- A redrive gives it the rest of its delay.
          local standing = list[i + 4] == 'aside' and 'aside' or 'hold'
          call('HSET', K.life .. id, 'reason', ARGV[5], 'kind', 'crowded out',
            'attempts', 0, 'door', 0, 'standing', standing)
          if list[i + 8] == '' then
            local task_type, tenant = facts_in_envelope(id)
            call('HSET', K.life .. id, 'type', task_type, 'tenant', tenant, 'scope', list[i + 9])
          end
        else
          call('HSET', K.life .. id, 'reason', reason, 'kind', 'rejected',
            'errors', list[i + 6], 'attempts', 0, 'door', 1)
        end
        add_letter(id, now)
      else
        if group == '' then plain = plain + 1 else grouped = grouped + 1 end
        if is_late then add_delay(id, bytes, whose, last) end
        if due and (group == '' or list[i + 4] == 'aside') then
          call('ZADD', K.delayed, digits(due), element)
          wake_at_due()
          if has_replaced and place(group, now) then runnable = true end
        elseif group ~= '' then
          local is_head = call('LPUSH', K.lane .. group, element) == 1
          local may_start = is_head or has_replaced or (is_limiting() and limits().may_fill(group))
          if may_start and place(group, now) then runnable = true end
        elseif pool then
          call('ZADD', index_of('ordered', pool), digits(arrival - priority), element)
          tell('pool')
        elseif is_limiting() and tenants().line_up_plain(element, digits(arrival - priority), false, now) then
          runnable = true
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
  local queued = call('HMGET', K.count, 'queued_plain', 'queued_grouped', 'asleep')
  local waiting = (tonumber(queued[1]) or 0) + (tonumber(queued[2]) or 0) - (tonumber(queued[3]) or 0)
  return { waiting - call('ZCARD', K.late), taken, crowded,
    accepted > 0 and arrival - 1 or 0, superseded }
end
