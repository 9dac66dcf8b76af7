-- Behind the prelude, in every script: how many tasks of a group run at once, how often they start, and
-- until when none may.
--
-- `limits` is the configuration: by `r` and the name of a rule, how many tasks of one of its groups may
-- run at once, µs between two starts (0: no rate), µs that a start may come before its time, and the rate
-- as it was written. Which rule a task is of is in its envelope. A group in which more than one may run has no lock: who runs in
-- it stands in `sharing`, a zset of equal scores, one member a claim: the length of the group in 4 digits,
-- the group, and what its lock would say. How many there are is counted there, and nowhere else.
--
-- `rates` has the theoretical arrival time (µs) of the next start (GCRA), by `g` and the group; one that
-- is past says nothing, and goes. `closed` has until when (µs) nothing starts, by the same.

local may_limit
function is_limiting()
  if may_limit == nil then may_limit = call('EXISTS', K.limits, K.sharing, K.rates, K.closed) > 0 end
  return may_limit
end

-- Functions are made anew each time a script runs: these only where there are limits.
local limits_made
function limits()
  if limits_made then return limits_made end
  local L = {}
  limits_made = L
  local NONE = { concurrency = 1, interval = 0, tolerance = 0 }
  local READ = 65536 -- bytes of an envelope that are read; of a larger message its life knows more
  local EXPIRED = 2 -- arrival times that are past, removed with each that is written: so they don't pile up

  -- The name of the rule that a task came by, '' where nothing tells.
  function L.rule_of(element)
    local id = id_of(element)
    local rule = has_life(element) and call('HGET', K.life .. id, 'rule')
    if rule then return rule end
    if call('HSTRLEN', K.tasks, id) > READ then return '' end
    local line = string.match(call('HGET', K.tasks, id) or '', '^[^\n]*')
    local is_sound, facts = pcall(cjson.decode, line)
    if not is_sound or type(facts) ~= 'table' or type(facts[4]) ~= 'string' then return '' end
    return facts[4]
  end

  -- The limit of a group whose head is of that rule.
  local found = {}
  local function limit_of(rule)
    local limit = found[rule]
    if limit then return limit end
    local text = rule ~= '' and call('HGET', K.limits, 'r' .. rule)
    limit = NONE
    if text then
      local concurrency, interval, tolerance, rate = string.match(text, '^(%S+) (%S+) (%S+) ?(.*)$')
      limit = {
        concurrency = tonumber(concurrency), interval = tonumber(interval), tolerance = tonumber(tolerance),
        rate = rate,
      }
    end
    found[rule] = limit
    return limit
  end

  -- The limit of a group of which this is the head.
  function L.of(head) return limit_of(L.rule_of(head)) end

  local function front_of(group) return format('%04d', #group) .. group end

  -- How many tasks of a group run.
  function L.running(group)
    local front = front_of(group)
    local shared = call('ZLEXCOUNT', K.sharing, '[' .. front .. '0', '(' .. front .. ':')
    return shared + call('EXISTS', K.lock .. group)
  end

  -- What locks would say of the tasks of a group that run without one.
  function L.holders(group)
    local front = front_of(group)
    local members = call('ZRANGE', K.sharing, '[' .. front .. '0', '(' .. front .. ':', 'BYLEX')
    for i, member in ipairs(members) do members[i] = sub(member, #front + 1) end
    return members
  end

  -- When a group's next start is due in the long run. No rate leads further ahead than this: so where one
  -- was changed, the old one doesn't hold on.
  local function next_start(group, limit, now)
    local due = tonumber(call('ZSCORE', K.rates, 'g' .. group) or 0)
    return math.min(due, now + limit.tolerance + limit.interval)
  end

  -- From when on the head of a group may start, by its limits alone: a time that may be past, and what
  -- sets it where it isn't ('closed' or 'rate'); nil where as many run as may.
  function L.free_at(group, head, now)
    local limit = limit_of(L.rule_of(head))
    if L.running(group) >= limit.concurrency then return nil end
    local free, why = tonumber(call('ZSCORE', K.closed, 'g' .. group) or 0), 'closed'
    if limit.interval > 0 then
      local from = math.ceil(next_start(group, limit, now) - limit.tolerance)
      if from > free then free, why = from, 'rate' end
    end
    return free, why
  end

  -- Notes that a task of a group runs, and that one has started. Returns false where the group is locked.
  -- `holder` is what the lock says: fence (16 digits), daemon, slot.
  function L.hold(group, element, holder, now)
    local limit = limit_of(L.rule_of(element))
    if limit.concurrency > 1 then
      call('ZADD', K.sharing, 0, front_of(group) .. holder)
    elseif call('SETNX', K.lock .. group, holder) == 0 then
      return false
    end
    if limit.interval > 0 then
      call('ZADD', K.rates, math.max(next_start(group, limit, now), now) + limit.interval, 'g' .. group)
      L.forget_rates(now, EXPIRED)
    end
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

  -- Nothing of a group starts before a time; the latest that was said holds.
  function L.close(group, till)
    call('ZADD', K.closed, 'GT', digits(till), 'g' .. group)
    may_limit = true
  end

  -- Removes arrival times that are past.
  function L.forget_rates(now, most)
    local past = call('ZRANGEBYSCORE', K.rates, '-inf', digits(now), 'LIMIT', 0, most)
    if #past > 0 then call('ZREM', K.rates, unpack(past)) end
  end
  return L
end
