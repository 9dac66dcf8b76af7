-- Behind the endings, in every script: a group whose rule has `on_drained` is drained when nothing of it waits, runs, is
-- delayed, stands aside or is parked. The script that ends its last task enqueues one that tells how its tasks ended
-- since it was drained before.
--
-- `limits` says by `d` and a rule's name of which pool ('' for none) and type that task is, and by `d` alone that any
-- rule wants one. `drains` has by group what has ended since then (JSON): `first` and `last` (16 digits), how many ended
-- in which way, and of the first of them its rule, tenant and scope. A task that tells of a drain has `drained` in its
-- task state: its own end doesn't count.

local may_drain
function is_draining()
  if may_drain == nil then may_drain = is_limiting() and call('HEXISTS', K.limits, 'd') == 1 end
  return may_drain
end

-- A script makes these only where any rule wants that.
local drains_made
function drains()
  if drains_made then return drains_made end
  local D = {}
  drains_made = D
  local ENDS = { 'done', 'dead', 'cancelled', 'expired', 'superseded', 'dropped' }

  -- The pool and the type of the tasks that tell of drained groups of a rule; nil where it wants none.
  local function told_by(rule)
    local text = rule ~= '' and call('HGET', K.limits, 'd' .. rule)
    if not text then return nil end
    return string.match(text, '^(%S*) (.*)$')
  end

  function D.count(how, id, group, now)
    if call('HEXISTS', K.task_state .. id, 'drained') == 1 then return end
    local kept, ends = call('HGET', K.drains, group), nil
    if kept then
      ends = cjson.decode(kept)
    else
      local rule, tenant, scope = limits().facts_of(NEVER .. '+' .. id)
      if not told_by(rule) then return end
      ends = { first = digits(now), rule = rule, tenant = tenant, scope = scope, app = origin_of(id).app }
    end
    ends.last, ends[how] = digits(now), (ends[how] or 0) + 1
    call('HSET', K.drains, group, cjson.encode(ends))
  end

  -- A fresh id. No message has it: one that took it has it in vain.
  local function id_for(group)
    local id = format('drained:%s:%.0f', group, call('INCR', K.fence))
    local is_known = call('HEXISTS', K.tasks, id) + call('HEXISTS', K.history_new, id) + call('HEXISTS', K.history_old, id)
    if is_known == 0 then return id end
    return id .. '~' .. sub(redis.sha1hex((call('HGET', K.segments, 'salt') or '') .. id), 1, 16)
  end

  local function body_of(group, ends)
    local parts = { '"group":' .. cjson.encode(group) }
    for _, how in ipairs(ENDS) do parts[#parts + 1] = format('"%s":%d', how, ends[how] or 0) end
    parts[#parts + 1] = format('"first_at":%.6f,"last_at":%.6f', ends.first / 1000000, ends.last / 1000000)
    return '{' .. table.concat(parts, ',') .. '}'
  end

  -- A group has an empty lane. If it is drained, a task that tells so is its next one. Returns that one's entry.
  function D.tell_of(group, now)
    local kept = call('HGET', K.drains, group)
    if not kept or call('HEXISTS', K.aside, group) + call('HEXISTS', K.parked, group) > 0 then return nil end
    if limits().running(group) > 0 then return nil end
    local ends = cjson.decode(kept)
    local pool, task_type = told_by(ends.rule)
    call('HDEL', K.drains, group)
    if not pool then return nil end -- the configuration is another one now
    local id, sequence = id_for(group), digits(next_sequence(now))
    local tenant = ends.tenant ~= '' and ends.tenant or cjson.null
    local facts = cjson.encode({ task_type, group, tenant, ends.rule, {}, ends.scope })
    call('HSET', K.tasks, id, facts .. '\n' .. body_of(group, ends))
    call('HSET', K.task_state .. id, 'sequence', sequence, 'group', group, 'priority', 0, 'type', task_type,
      'tenant', ends.tenant, 'scope', ends.scope, 'rule', ends.rule, 'drained', 1)
    if pool ~= '' then
      call('HSET', K.task_state .. id, 'pool', pool)
      if call('HSETNX', K.pools, pool, digits(now)) == 1 then pools_known = nil end
    end
    call('HSET', K.count, 'sequence', sequence)
    for _, total in ipairs({ 'taken', 'queued_grouped', 'drained' }) do call('HINCRBY', K.count, total, 1) end
    if is_told('drained') then
      local told = { event = 'drained', id = id, type = task_type, group = group, app = ends.app, ends = {} }
      told.tenant = ends.tenant ~= '' and ends.tenant or nil
      for _, how in ipairs(ENDS) do told.ends[how] = ends[how] or 0 end
      put_out({ cjson.encode(told) }, now)
    end
    local entry = sequence .. '+' .. id
    call('LPUSH', K.lane .. group, entry)
    return entry
  end
  return D
end

-- A task of a group ('' for a plain one) ends, as one of ENDS: what is known of it is still there, and the group is
-- placed behind that.
function count_end(how, id, group, now)
  if group ~= '' and is_draining() then drains().count(how, id, group, now) end
end
