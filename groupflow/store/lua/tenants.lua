-- Behind the limits, in every script: how tenants share what there is, and what each of them may have.
--
-- A tenant is an application and one of its tenants: the 8 digits of its scope (see `ids.lua`), and the tenant's name.
-- Some are *managed*: those with a limit, by hand too (`by_hand.lua`), those that a handler closed, and with the order
-- 'tenants' all, also what has no tenant. What is ready of a managed tenant waits by itself, in `waits:` and its kind:
-- `g` groups, `G` groups whose head is a quarantined task, `p` plain tasks, `P` plain quarantined tasks. Only the best
-- of each kind stands in the index that claims look at (`ready`, `quarantined_groups`, `ordered`, `quarantined_plain`),
-- as long as the tenant may start something: its *turn*, noted in `turns`. So claims look at one thing of a tenant in
-- an index at most, and at nothing of one that may not start.
--
-- `waiting_groups` has for each such group where it waits: its kind and tenant. `standing` has the tenants of which
-- something waits and nothing may start: until when (µs), or NO_END where one of its tasks has to end first. `charged`
-- has the running claims of managed tenants, by fence; `charges` has them again, a zset of equal scores in which each
-- tenant's are counted, as in `sharing`. Rates and closings are as for groups, by `t`. With the order 'tenants'
-- `shares:g` and `shares:p`, for groups and plain tasks, have by tenant the virtual time at which it is next, which
-- each start moves on by its weight's share; and by `=` that of the last start.

local NO_END = 9000000000000000
local STRIDE = 1000 -- of virtual time, for one start at weight 1

local tenants_made
function tenants()
  if tenants_made then return tenants_made end
  local T, L = {}, limits()
  tenants_made = T
  local INDEX = { g = K.ready, G = K.quarantined_groups, p = K.ordered, P = K.quarantined_plain }
  local KINDS = { 'g', 'G', 'p', 'P' }
  local POOL = { g = 'g', G = 'g', p = 'p', P = 'p' }

  local function name_of(tenant) return sub(tenant, 9) end
  local function waits(kind, tenant) return K.waits .. kind .. tenant end

  local found = {}
  local function limit_of(tenant)
    local name = name_of(tenant)
    if found[name] then return found[name] end
    local text = name ~= '' and (call('HGET', K.limits, 't' .. name) or call('HGET', K.limits, 't'))
    local limit = { concurrency = 0, interval = 0, tolerance = 0, weight = 1 }
    if text then
      local concurrency, weight, rest = string.match(text, '^(%S+) (%S+) (.*)$')
      limit = L.parsed(concurrency, string.match(rest, '^(%S+) (%S+) ?(.*)$'))
      limit.weight = tonumber(weight)
    end
    found[name] = L.under(name ~= '' and L.shared(L.by_hand('t' .. name)), limit)
    return found[name]
  end
  T.limit_of = limit_of

  -- The tenant of a task, managed or not.
  function T.tenant_of(entry)
    local _, name, scope = L.facts_of(entry)
    return tenant_named(name, scope)
  end

  -- The tenant of a task, if managed; else nil. A task of a pool is in no such line.
  function T.of(entry)
    if has_state(entry) and call('HGET', K.task_state .. id_of(entry), 'pool') then return nil end
    local tenant = T.tenant_of(entry)
    if ORDER == 'tenants' then return tenant end
    if name_of(tenant) == '' then return nil end
    local limit = limit_of(tenant)
    if limit.concurrency > 0 or limit.interval > 0 or limit.till then return tenant end
    return call('ZSCORE', K.closed, 't' .. tenant) and tenant or nil
  end

  function T.running(tenant) return count_of(K.charges, tenant) end

  -- From when on something of a tenant may start, and what sets it; nil where as many run as may.
  function T.free_at(tenant, now)
    local limit = limit_of(tenant)
    if limit.concurrency > 0 and T.running(tenant) >= limit.concurrency then return nil end
    return L.free_by_clock('t' .. tenant, limit, now)
  end

  -- The virtual time at which a tenant is next. It begins with the clock: behind all that came before.
  local function share_of(pool, tenant, now)
    local own = tonumber(call('ZSCORE', K.shares .. pool, tenant) or 0)
    return math.max(own, tonumber(call('ZSCORE', K.shares .. pool, '=') or now))
  end

  -- Gives a tenant its turn where it may start something, else takes it. Returns whether it may.
  function T.turn(tenant, now)
    local free = T.free_at(tenant, now)
    local may_start, does_wait = free ~= nil and free <= now, false
    for _, kind in ipairs(KINDS) do
      local turn, best = call('HGET', K.turns, kind .. tenant), call('ZRANGE', waits(kind, tenant), 0, 0, 'WITHSCORES')
      does_wait = does_wait or best[1] ~= nil
      local next_turn = may_start and best[1]
      if turn and turn ~= next_turn then
        call('ZREM', INDEX[kind], turn)
        call('HDEL', K.turns, kind .. tenant)
        if is_capping() then caps().lose(kind, turn, now) end
      end
      if next_turn then
        local score = ORDER == 'tenants' and share_of(POOL[kind], tenant, now) or best[2]
        call('ZADD', INDEX[kind], score, next_turn)
        if next_turn ~= turn then call('HSET', K.turns, kind .. tenant, next_turn) end
      end
    end
    if does_wait and not may_start then
      call('ZADD', K.standing, free and digits(free) or NO_END, tenant)
      if free then wake_at_due(K.standing, free) end
    elseif call('ZREM', K.standing, tenant) == 1 and does_wait then
      wake()
    end
    return may_start
  end

  -- Takes a group out of where it waits, if it does; then another has its tenant's turn.
  function T.leave(group, now)
    local place = call('HGET', K.waiting_groups, group)
    if not place then return end
    local kind, tenant = sub(place, 1, 1), sub(place, 2)
    call('HDEL', K.waiting_groups, group)
    call('ZREM', waits(kind, tenant), group)
    if call('HGET', K.turns, place) == group then -- it goes by itself: the turn of its type isn't lost by that
      call('ZREM', INDEX[kind], group)
      call('HDEL', K.turns, place)
    end
    T.turn(tenant, now)
  end

  -- Lets a ready group wait for its tenant's turn. Returns nil where its tenant isn't managed, else whether that may
  -- start something.
  function T.line_up(group, head, score, is_quarantined, now)
    local tenant = T.of(head)
    local place = tenant and ((is_quarantined and 'G' or 'g') .. tenant)
    local before = call('HGET', K.waiting_groups, group)
    if before and before ~= place then T.leave(group, now) end
    if not tenant then return nil end
    if before ~= place then
      leave_indexes(group)
      call('HSET', K.waiting_groups, group, place)
    end
    line_up(K.waits .. place, score, group)
    return T.turn(tenant, now)
  end

  -- The same for a plain task; false where its tenant isn't managed.
  function T.line_up_plain(entry, score, is_quarantined, now)
    local tenant = T.of(entry)
    if not tenant then return false end
    call('ZADD', waits(is_quarantined and 'P' or 'p', tenant), score, entry)
    T.turn(tenant, now)
    return true
  end

  -- Where a plain task without a task state would wait for its tenant's turn.
  function T.queue_of(id) return waits('p', T.tenant_of(digits(0) .. '.' .. id)) end

  -- Takes a plain task out of where it waits. Returns whether it did.
  function T.leave_plain(entry, now)
    local tenant = T.tenant_of(entry)
    if call('ZREM', waits('p', tenant), entry) + call('ZREM', waits('P', tenant), entry) == 0 then
      return false
    end
    T.turn(tenant, now)
    return true
  end

  -- A claim under a fence (16 digits) counts for a tenant.
  function T.charge(tenant, fence) L.charge(K.charged, K.charges, tenant, fence) end
  local function uncharge(fence) return L.uncharge(K.charged, K.charges, fence) end

  -- A slot goes on under another fence.
  function T.recharge(before, fence)
    local tenant = uncharge(before)
    if tenant then T.charge(tenant, fence) end
  end

  -- Whether neither a rate nor a closing holds a tenant's starts apart.
  function T.is_unpaced(tenant, now)
    return limit_of(tenant).interval == 0 and tonumber(call('ZSCORE', K.closed, 't' .. tenant) or 0) <= now
  end

  -- Something of a managed tenant has started, in a pool ('g' or 'p'), under a fence (16 digits).
  function T.start(tenant, fence, pool, now)
    local limit = limit_of(tenant)
    T.charge(tenant, fence)
    if limit.interval > 0 then L.advance('t' .. tenant, limit, now) end
    if ORDER == 'tenants' then
      local shares, share = K.shares .. pool, share_of(pool, tenant, now)
      call('ZADD', shares, share, '=', share + STRIDE / limit.weight, tenant)
      -- A tenant behind that has nothing that waits, or would have been first: it counts as new.
      local past = call('ZRANGEBYSCORE', shares, '-inf', '(' .. format('%.17g', share), 'LIMIT', 0, 3)
      if #past > 0 then call('ZREM', shares, unpack(past)) end
    end
    T.turn(tenant, now)
  end

  -- A run under a fence (16 digits) has begun so many more tasks, without a turn of their own: only its tenant's
  -- virtual time moves on.
  function T.run_on(fence, number, now)
    local tenant = ORDER == 'tenants' and number > 0 and call('HGET', K.charged, fence)
    if not tenant then return end
    local share = share_of('g', tenant, now) + number * STRIDE / limit_of(tenant).weight
    call('ZADD', K.shares .. 'g', share, tenant)
    T.turn(tenant, now)
  end

  -- A claim has ended (fence: 16 digits).
  function T.let_go(fence, now)
    local tenant = uncharge(fence)
    if tenant then T.turn(tenant, now) end
  end

  -- Whether a task may start, by its tenant alone.
  function T.may_start(tenant, now)
    local free = T.free_at(tenant, now)
    return free and free <= now
  end

  -- Nothing of a tenant starts before a time.
  function T.close(tenant, till, now)
    L.close('t' .. tenant, till)
    T.turn(tenant, now)
  end

  -- Turns up to `most` tenants whose rate or closing lets something start now. Returns how many there were.
  function T.promote(most, now)
    local due = call('ZRANGEBYSCORE', K.standing, '-inf', digits(now), 'LIMIT', 0, most)
    for _, tenant in ipairs(due) do T.turn(tenant, now) end
    -- Where no tenant waits, none is behind.
    if ORDER == 'tenants' and call('EXISTS', K.turns, K.standing) == 0 then
      call('DEL', K.shares .. 'g', K.shares .. 'p')
    end
    return #due
  end
  return T
end
