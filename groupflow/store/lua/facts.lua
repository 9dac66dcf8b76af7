-- Behind the prelude where tasks are looked at: what is known of one, without its headers or body.

-- Bytes of an envelope that is read for that, or of a letter's errors. A field of a hash is read whole,
-- and a body may have megabytes; what is longer has its facts in the task's life, since its enqueue.
local READ = 65536

-- The type, tenant and group that an envelope begins with, '' each where there is none; and its scope,
-- nil where a version wrote it that knew none.
local function facts_in_envelope(id)
  local length = call('HSTRLEN', K.tasks, id)
  if length == 0 or length > READ then return '', '', '' end
  local line = string.match(call('HGET', K.tasks, id), '^[^\n]*')
  local is_sound, facts = pcall(cjson.decode, line)
  if not is_sound or type(facts) ~= 'table' then return '', '', '' end
  local function text(place) return type(facts[place]) == 'string' and facts[place] or '' end
  return text(1), text(3), text(2), facts[6]
end

-- A task's type, tenant and group, '' each where there is none.
local function facts_of(id)
  local kept = call('HMGET', K.life .. id, 'type', 'tenant', 'group')
  if kept[1] then return kept[1], kept[2] or '', kept[3] or '' end
  return facts_in_envelope(id)
end

-- Whose a task is, as its enqueue was told; nil where a version wrote it that knew no scopes.
local function scope_of(id)
  local kept = call('HGET', K.life .. id, 'scope')
  if kept then return kept end
  local _, _, _, scope = facts_in_envelope(id)
  return scope
end
