-- Behind the prelude, in every script: how many tasks of a group run at once, how often they start, and
-- until when none may.
--
-- `limits` is the configuration. By `r` and a rule's name: how many tasks of one of its groups may run at once, µs
-- between two starts (0: no rate), µs that a start may come before its time, and the rate as it was written. By `b` and
-- a rule's name: how many tasks make a batch, and µs for which fewer wait for more; by `b` alone: that any do. A task's
-- envelope names its rule. A group in which more than one may run has no lock: its claims stand in `sharing`, a zset of
-- equal scores, one member a claim: the length of the group in 4 digits, the group, and what its lock would say. Only
-- there are they counted.
--
-- What `by_hand` says of a group, for as long as it does, goes before what its rule says (see `by_hand.lua`).
--
-- `rates` has the theoretical arrival time (µs) of the next start (GCRA), by `g` and the group, `t` and the tenant (see
-- `tenants.lua`), or `y` and a pattern of types (`caps.lua`); a time that is past says nothing, and is removed. `closed`
-- has until when (µs) nothing starts, by the same.

-- In a zset of equal scores each member begins with a name and its length, and those of a name are counted.
local function front_of(name) return format('%04d', #name) .. name end

local function count_of(index, name)
  local front = front_of(name)
  return call('ZLEXCOUNT', index, '[' .. front .. '0', '(' .. front .. ':')
end

local may_limit
function is_limiting()
  if may_limit == nil then
    may_limit = ORDER == 'tenants'
      or call('EXISTS', K.limits, K.by_hand, K.sharing, K.rates, K.closed, K.charged, K.turns, K.standing,
        K.caps, K.cap_charged, K.cap_lines) > 0
  end
  return may_limit
end

-- Lua makes functions each time a script runs: these only where there are limits.
local limits_made
function limits()
  if limits_made then return limits_made end
  local L = {}
  limits_made = L
  local NONE = { concurrency = 1, interval = 0, tolerance = 0 }
  local EXPIRED = 2 -- arrival times that are past, removed with each that is written: so they don't pile up

  -- What is known of a task: the names of its rule and its tenant, its scope, its type; each '' where nothing tells.
  -- Of a large message its task state tells. A script asks often for those of one task.
  local known = {}
  function L.facts_of(entry)
    local facts = known[entry]
    if not facts then
      local task_type, tenant, _, scope, rule = facts_in_envelope(id_of(entry))
      facts = { rule, tenant, scope, task_type }
      if task_type == '' then
        facts = call('HMGET', K.task_state .. id_of(entry), 'rule', 'tenant', 'scope', 'type')
      end
      known[entry] = facts
    end
    return facts[1] or '', facts[2] or '', facts[3] or '', facts[4] or ''
  end

  function L.parsed(concurrency, interval, tolerance, rate)
    return {
      concurrency = tonumber(concurrency), interval = tonumber(interval), tolerance = tonumber(tolerance), rate = rate,
    }
  end

  -- The limit of a group whose head is of that rule.
  local found = {}
  local function limit_of(rule)
    if not found[rule] then
      local text = rule ~= '' and call('HGET', K.limits, 'r' .. rule)
      found[rule] = text and L.parsed(string.match(text, '^(%S+) (%S+) (%S+) ?(.*)$')) or NONE
    end
    return found[rule]
  end

  -- A limit by hand, as `by_hand` has it.
  function L.in_hand(text)
    local hand = L.parsed(string.match(text, '^%d+ (%S+) (%S+) (%S+) %d+ ?([^\n]*)'))
    hand.till = tonumber(string.match(text, '^%d+'))
    return hand
  end

  -- What an operator set for a group, or a tenant, for a while: until when (µs), and concurrency and rate, nil where
  -- that stays as configured; nil where nothing holds, even if it isn't removed yet.
  local is_any, moment
  function L.by_hand(whose)
    if is_any == nil then is_any = call('EXISTS', K.by_hand) == 1 end
    local text = is_any and call('HGET', K.by_hand, whose)
    if not text then return nil end
    local hand = L.in_hand(text)
    moment = moment or clock()
    return hand.till > moment and hand or nil
  end

  -- A tenant's or a type's limit by hand is for all partitions together: takes this one's share.
  function L.shared(hand)
    local parts = hand and tonumber(call('HGET', K.partitions, 'number') or 1)
    if not hand or parts == 1 then return hand end
    if (hand.concurrency or 0) > 0 then hand.concurrency = math.max(1, math.floor(hand.concurrency / parts)) end
    hand.interval = hand.interval and hand.interval * parts
    return hand
  end

  -- A limit under what was set by hand, if anything was.
  function L.under(hand, limit)
    if not hand then return limit end
    local paced = hand.interval and hand or limit
    return {
      concurrency = hand.concurrency or limit.concurrency, weight = limit.weight, till = hand.till,
      interval = paced.interval, tolerance = paced.tolerance, rate = paced.rate,
    }
  end

  -- The limit of a group of which this is the head.
  function L.of(group, head) return L.under(L.by_hand('g' .. group), limit_of((L.facts_of(head)))) end

  -- Until when the tasks of a group wait for more, where their rule makes batches; 0 where they don't. Pullers claim
  -- the tasks of a pool one by one.
  local may_gather
  local function is_gathering()
    if may_gather == nil then may_gather = call('HEXISTS', K.limits, 'b') == 1 end
    return may_gather
  end

  local function gathers_until(group, head)
    if not is_gathering() then return 0 end
    if has_state(head) and call('HEXISTS', K.task_state .. id_of(head), 'pool') == 1 then return 0 end
    local rule = L.facts_of(head)
    local text = rule ~= '' and call('HGET', K.limits, 'b' .. rule)
    if not text then return 0 end
    local batch, wait = string.match(text, '^(%S+) (%S+)$')
    if call('LLEN', K.lane .. group) >= tonumber(batch) then return 0 end
    return sequence_of(head) + wait
  end

  -- Whether one more task behind others in a group may have filled a batch.
  function L.may_fill(group) return is_gathering() and call('ZSCORE', K.held, group) end

  -- How many tasks of a group run.
  function L.running(group) return count_of(K.sharing, group) + call('EXISTS', K.lock .. group) end

  -- Whether a group has no limit beside running one at a time, as its head says.
  function L.is_serial(group, head)
    local limit = L.of(group, head)
    return limit.concurrency <= 1 and limit.interval == 0
  end

  -- What the locks of a group's running tasks would say, of those that run without one.
  function L.holders(group)
    local front = front_of(group)
    local members = call('ZRANGE', K.sharing, '[' .. front .. '0', '(' .. front .. ':', 'BYLEX')
    for i, member in ipairs(members) do members[i] = sub(member, #front + 1) end
    return members
  end

  -- When the next start of a group, or a tenant, is due in the long run. No rate leads further ahead than this, so an
  -- old rate doesn't hold on after a change.
  local function next_start(whose, limit, now)
    local due = tonumber(call('ZSCORE', K.rates, whose) or 0)
    return math.min(due, now + limit.tolerance + limit.interval)
  end

  -- From when on one may start, by its rate and by what a handler closed. That may be past. Also which of the two sets
  -- it ('closed' or 'rate').
  function L.free_by_clock(whose, limit, now)
    local free, why = tonumber(call('ZSCORE', K.closed, whose) or 0), 'closed'
    if limit.interval > 0 then
      local from = math.ceil(next_start(whose, limit, now) - limit.tolerance)
      if from > free then free, why = from, 'rate' end
    end
    return free, why
  end

  -- A start has happened.
  function L.advance(whose, limit, now)
    call('ZADD', K.rates, math.max(next_start(whose, limit, now), now) + limit.interval, whose)
    L.forget(K.rates, now, EXPIRED)
  end

  -- From when on the head of a group may start, by its limits alone. That may be past. Also what sets it where it isn't
  -- ('closed', 'rate' or 'batch'); nil where as many run as may.
  function L.free_at(group, head, now)
    local limit = L.of(group, head)
    if L.running(group) >= limit.concurrency then return nil end
    -- What a run has begun stands in the lane: a head that may now run beside others waits for the run's end.
    if limit.concurrency > 1 and call('HEXISTS', K.runs, group) == 1 then return nil end
    local free, why = L.free_by_clock('g' .. group, limit, now)
    -- Under a limit by hand, or of their type, tasks are claimed one by one: no batch will be full.
    local may_gather_here = limit.concurrency == 1 and limit.interval == 0 and not (is_capping() and caps().of(head))
    local full = may_gather_here and gathers_until(group, head) or 0
    if full > free then return full, 'batch' end
    return free, why
  end

  -- Notes that a task of a group runs, and that one has started. Returns false where the group is locked.
  -- `holder` is what the lock says: fence (16 digits), daemon, slot.
  function L.hold(group, entry, holder, now)
    local limit = L.of(group, entry)
    if limit.concurrency > 1 then
      call('ZADD', K.sharing, 0, front_of(group) .. holder)
    elseif call('SETNX', K.lock .. group, holder) == 0 then
      return false
    end
    if limit.interval > 0 then L.advance('g' .. group, limit, now) end
    return true
  end

  -- Ends what `hold` noted for a fence (16 digits): its place among those that share a group, or the lock.
  function L.let_go(group, fence)
    local front = front_of(group) .. fence
    local member = call('ZRANGE', K.sharing, '[' .. front, '(' .. front .. '!', 'BYLEX', 'LIMIT', 0, 1)[1]
    if member then
      call('ZREM', K.sharing, member)
    else
      call('DEL', K.lock .. group)
    end
  end

  -- Nothing of a group, or a tenant, starts before a time; the latest time told holds.
  function L.close(whose, till)
    call('ZADD', K.closed, 'GT', digits(till), whose)
    may_limit = true
  end

  -- Removes times that are past from `rates` or `closed`.
  function L.forget(times, now, most)
    local past = call('ZRANGEBYSCORE', times, '-inf', digits(now), 'LIMIT', 0, most)
    if #past > 0 then call('ZREM', times, unpack(past)) end
  end

  -- A claim under a fence (16 digits) counts for a name: the hash `charged` says for which, and in the zset `charges`
  -- those of each name are counted.
  function L.charge(charged, charges, name, fence)
    call('HSET', charged, fence, name)
    call('ZADD', charges, 0, front_of(name) .. fence)
  end

  -- It counts for none any more. Returns for which it did.
  function L.uncharge(charged, charges, fence)
    local name = call('HGET', charged, fence)
    if not name then return nil end
    call('HDEL', charged, fence)
    call('ZREM', charges, front_of(name) .. fence)
    return name
  end
  return L
end
