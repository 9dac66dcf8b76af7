-- Behind the facts and the ids in operators' scripts that give a task another id, scope or partition.

local function is_known(id) return call('HEXISTS', K.tasks, id) == 1 or has_ended(id) end

-- The message id that decides where a plain task lies: of a derived one, what it was derived from. Of a tick,
-- its schedule; the schedule's scope tells a tick from a message that was published under such an id.
local function name_of(id, scope)
  local schedule = string.match(id, '^schedule:[%w._-]+')
  if schedule and scope == sub(redis.sha1hex((string.gsub(schedule, ':', ' ', 1))), 1, 8) then return schedule end
  local origin = #id > 17 and string.match(sub(id, -17), '^~%x+$') and sub(id, 1, -18)
  if origin and call('HEXISTS', K.renamed, family(scope, origin)) == 1 then return origin end
  return id
end

-- A derived id of a scope's message id that is free here.
local function derive(id, scope)
  local number = tonumber(call('HGET', K.renamed, family(scope, id)) or nil) or 0
  local derived
  repeat
    number = number + 1
    derived = derived_id(scope, id, number)
  until not is_known(derived)
  call('HSET', K.renamed, family(scope, id), plain_digits(number))
  return derived
end

-- Keeps a message id known in its scope, though its dead letter goes to another partition or scope: if its ack was
-- lost, the message comes again and is refused again. The history's line is under a derived id, so that the id is free.
local function stay_known(id, now, random)
  local scope = scope_of(id)
  call('HSETNX', K.segments, 'salt', random)
  local line = cjson.encode({ 'moved', '', cjson.null, 0, 0, scope })
  call('HSET', K.history_new, derive(name_of(id, scope), scope), digits(now) .. line)
end
