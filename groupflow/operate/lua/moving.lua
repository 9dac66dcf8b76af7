-- Behind the facts and the ids in scripts that move tasks between partitions. No daemon runs meanwhile, unless
-- one dead letter moves: `move_out`, `move_in` and `move_turns` check, and change nothing if one does.
--
-- A task is read in its old partition, written to the new one, and only then removed: a move that is cut
-- short is done again. `moved` notes a written task, under the partition that it came from, until it is
-- gone there.

-- The key of a place; if it is a pool's, of that pool.
local function key_in(where, pool) return TAG .. where .. (pool == '' and '' or ':' .. pool) end

local function living(now)
  local names = {}
  local function look(leases)
    local some = call('ZRANGE', leases, '+inf', '(' .. digits(now), 'BYSCORE', 'REV', 'LIMIT', 0, 100)
    for _, daemon in ipairs(some) do names[#names + 1] = daemon end
  end
  look(K.daemons)
  for _, pool in ipairs(pools()) do look(K.pool_pullers .. pool) end
  return #names > 0 and names
end

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

local HISTORY = { history_new = K.history_new, history_old = K.history_old }
local MOVED = 'moved' -- how a line of the history begins whose letter went to another partition

-- The scope at the end of a line of the history.
local function scope_in(line) return string.match(line, '"(%x*)"%]$') end

-- Removes the line that a letter of this id and scope has left here.
local function forget_move(id, scope)
  for _, kind in ipairs({ 'history_new', 'history_old' }) do
    local line = call('HGET', HISTORY[kind], id)
    if line and sub(line, 17, 25) == '["' .. MOVED .. '",' and scope_in(line) == scope then
      call('HDEL', HISTORY[kind], id)
    end
  end
end

-- An id that is free here: the task's own, or one derived from it if another task has that.
local function free_id(id, scope)
  forget_move(id, scope)
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
