-- Behind the facts and the ids where tasks go from one partition to another. No daemon runs meanwhile:
-- each script looks for itself, and changes nothing where one does.
--
-- A task is read where it lies, written where it is to lie, and only then removed: whatever is cut
-- short is done again. What was written is noted in `moved`, under the partition that it came from,
-- until it is gone there.

-- The index of a place; of those of pools, the one of that pool.
local function key_in(where, pool) return TAG .. where .. (pool == '' and '' or ':' .. pool) end

local function living(now)
  local names = {}
  local function look(leases)
    local some = call('ZRANGE', leases, '+inf', '(' .. digits(now), 'BYSCORE', 'REV', 'LIMIT', 0, 100)
    for _, daemon in ipairs(some) do names[#names + 1] = daemon end
  end
  look(K.daemons)
  look(K.pullers)
  for _, pool in ipairs(pools()) do look(K.pool_pullers .. pool) end
  return #names > 0 and names
end

local function is_known(id) return call('HEXISTS', K.tasks, id) == 1 or has_ended(id) end

-- The message id that decides where a plain task lies: of a derived one, what it was derived from.
-- Of a schedule's tick the schedule, whose own scope tells it from what anybody published under such an id.
local function name_of(id, scope)
  local schedule = string.match(id, '^schedule:[%w._-]+')
  if schedule and scope == sub(redis.sha1hex((string.gsub(schedule, ':', ' ', 1))), 1, 8) then return schedule end
  local origin = #id > 17 and string.match(sub(id, -17), '^~%x+$') and sub(id, 1, -18)
  if origin and call('HEXISTS', K.renamed, family(scope or '', origin)) == 1 then return origin end
  return id
end

-- An id that is free here: the task's own, or where another task has that, one derived from it.
local function free_id(id, scope)
  if not is_known(id) then return id end
  local number = tonumber(call('HGET', K.renamed, family(scope, id)) or nil) or 0
  local derived
  repeat
    number = number + 1
    derived = derived_id(scope, id, number)
  until not is_known(derived)
  call('HSET', K.renamed, family(scope, id), plain_digits(number))
  return derived
end
