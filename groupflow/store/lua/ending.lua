-- Behind the facts, in every script: how a task ends that is not done, and is no dead letter.

-- Counts the end of a task for its group: see `draining.lua`.
local count_end

local function is_told(how) return string.find(TELLS, ' ' .. how .. ' ', 1, true) end

-- Whether any message ever asked for a reply: a script asks that once.
local may_reply
local function asks_for_reply(id)
  if may_reply == nil then may_reply = call('HEXISTS', K.count, 'replies') == 1 end
  return may_reply and origin_of(id).reply_to
end

-- A task ends, and what is known of it is still there: counts that for its group, and tells it. What settles a task as
-- done tells that by itself. `more` makes what else is told of it: `reason`, `seconds`, `daemon`.
local function note_end(how, id, group, now, more)
  count_end(how, id, group, now)
  if not is_told(how) and not asks_for_reply(id) then return end
  local told, origin, task_type, tenant = more and more() or {}, origin_of(id), facts_of(id)
  local kept = call('HMGET', K.task_state .. id, 'attempt', 'attempts', 'crashes', 'redriven')
  told.event, told.id, told.type, told.tenant = how, id, task_type, tenant ~= '' and tenant or nil
  told.group, told.app = group ~= '' and group or nil, origin.app
  told.correlation_id, told.reply_to = origin.correlation_id, origin.reply_to
  told.attempts = tonumber(kept[2] or nil) or (tonumber(kept[1] or nil) or 1) - 1
  told.crashes, told.redriven = tonumber(kept[3] or nil) or 0, tonumber(kept[4] or nil)
  put_out({ cjson.encode(told) }, now)
end

-- `cancels` has the tasks that are to be cancelled and have not ended yet: by id, who wants it and why, or the id of the
-- newer task that replaces this one (JSON: a list, or a text). A task that waits ends at once. One that is claimed ends
-- with its attempt, unless it is done or dead then: it neither waits again nor begins. Nearly always there are none: a
-- script asks that once.
local may_cancel
local function cancel_of(id)
  if may_cancel == nil then may_cancel = call('EXISTS', K.cancels) == 1 end
  return may_cancel and call('HGET', K.cancels, id)
end

-- Notes that a task is to be cancelled, who wants that and why (JSON, a list), and since when; and tells daemons. A
-- person's request stands before that of a newer task. Returns whether it is new.
local function request_cancel(id, asked, now)
  local is_new = byte(call('HGET', K.cancels, id) or '"') == byte('"')
  if is_new then call('HSET', K.cancels, id, sub(asked, 1, -2) .. ',"' .. digits(now) .. '"]') end
  tell('cancel:' .. id)
  return is_new
end

local function forget_cancel(id)
  if cancel_of(id) then call('HDEL', K.cancels, id) end
end

-- `expiring` has the tasks that have to start in time, and have not started: by id, until when (µs). One that is late
-- ends as expired. A task leaves it with its first claim. `count` has how many claims have ended so that no log tells of
-- yet (`expired_unsaid`). Nearly always there are none: a script asks that once.
local may_expire
local function start_by(id)
  if may_expire == nil then may_expire = call('EXISTS', K.expiring) == 1 end
  return tonumber(may_expire and call('ZSCORE', K.expiring, id) or nil)
end

-- A task has started in time, or is over.
local function forget_expiry(id)
  if start_by(id) then call('ZREM', K.expiring, id) end
end

-- A task that waited or ran is over: deletes its task state, if any.
local function end_state(id)
  put_down(id)
  forget_cancel(id)
  call('DEL', K.task_state .. id)
end

-- A task is over that ends in no slot. Its line stays in the history.
local function end_with(id, group, line, now)
  remove_delay(id)
  forget_expiry(id)
  call('HDEL', K.tasks, id)
  end_state(id)
  call('HSET', K.history_new, id, digits(now) .. line)
  if group ~= '' then keep_lately({ id }) end
end

-- The same for a task that neither waits nor runs any more: `how` it ended, which is also what counts it, and what
-- the history says of that (a value for JSON), in front of the scope.
local function end_as(how, id, group, said, now)
  note_end(how, id, group, now, function()
    return { reason = type(said) == 'table' and said[2] or how == 'superseded' and said or nil }
  end)
  local task_state = call('HMGET', K.task_state .. id, 'attempt', 'crashes', 'lost_leases', 'type', 'scope')
  local died, lost_leases = tonumber(task_state[2] or 0), tonumber(task_state[3] or 0)
  local task_type, scope = task_state[4], task_state[5]
  if not task_type or not scope then
    local type_read, _, _, scope_read = facts_in_envelope(id)
    task_type, scope = task_type or type_read, scope or scope_read
  end
  if lost_leases > 0 then died = { died - lost_leases, lost_leases } end
  end_with(id, group, cjson.encode({
    how, task_type, group ~= '' and group or cjson.null, tonumber(task_state[1] or 1), died, said, scope,
  }), now)
  call('HINCRBY', K.count, how, 1)
end

-- Ends such a task, if that is asked for: as cancelled, or as superseded by a newer one. Returns the verdict that a
-- settle then gets, 5 or 6; else nil.
local function end_if_cancelled(id, group, now)
  local asked = cancel_of(id)
  if not asked then return nil end
  local said = cjson.decode(asked)
  local is_replaced = type(said) == 'string'
  end_as(is_replaced and 'superseded' or 'cancelled', id, group, said, now)
  return is_replaced and 6 or 5
end
