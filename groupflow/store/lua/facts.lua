-- Behind the prelude, in every script: what is known of a task, without its headers or body.

-- Bytes of an envelope, or of a letter's errors, that a script reads for that. Redis reads a field of a hash whole, and
-- a body may have megabytes; the task state has the facts of what is longer, since its enqueue.
local READ = 65536

-- What its envelope tells of a task: type, tenant, group, scope, and the name of its rule; '' each where there is none.
-- Then its origin, if any: `app`, `correlation_id`, `reply_to` of its message, as far as its end is to be told with them.
-- A script that ends many tasks asks more than once for each.
local read_last, facts_last
local function facts_in_envelope(id)
  if id == read_last then return unpack(facts_last) end
  local length = call('HSTRLEN', K.tasks, id)
  if length == 0 or length > READ then return '', '', '', '', '' end
  local is_sound, facts = pcall(cjson.decode, string.match(call('HGET', K.tasks, id), '^[^\n]*'))
  if not is_sound or type(facts) ~= 'table' then return '', '', '', '', '' end
  local function text(place) return type(facts[place]) == 'string' and facts[place] or '' end
  local origin = type(facts[7]) == 'table' and facts[7] or nil
  read_last, facts_last = id, { text(1), text(3), text(2), text(6), text(4), origin }
  return unpack(facts_last)
end

-- A task's type, tenant and group, '' each where there is none.
local function facts_of(id)
  local kept = call('HMGET', K.task_state .. id, 'type', 'tenant', 'group')
  if kept[1] then return kept[1], kept[2] or '', kept[3] or '' end
  return facts_in_envelope(id)
end

-- The origin of a task, {} where none is known.
local function origin_of(id)
  local kept = call('HGET', K.task_state .. id, 'origin')
  if kept then return cjson.decode(kept) end
  local _, _, _, _, _, origin = facts_in_envelope(id)
  return origin or {}
end

-- The scope of a task, as its enqueue was told.
local function scope_of(id)
  local kept = call('HGET', K.task_state .. id, 'scope')
  if kept then return kept end
  local _, _, _, scope = facts_in_envelope(id)
  return scope
end
