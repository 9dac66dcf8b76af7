-- Behind the facts in the scripts that know ids: which scope a message id belongs to. Each message comes with a
-- *scope*, a digest of its application and tenant ('' where it told neither). Where an id belongs to another scope, the
-- message gets a derived one, `<message id>~<16 hex digits>`.
--
-- `renamed` holds, for each scope and message id that ever got one, the number of the newest derived id, for as long as
-- any of them is known; so a script looks up what clashed once under those names too.

local FAMILY = 16 -- derived ids of one scope and message id that are looked at, the newest ones

local old_history = call('EXISTS', K.history_old) == 1

local function has_ended(id)
  if call('HEXISTS', K.history_new, id) == 1 then return true end
  return old_history and call('HEXISTS', K.history_old, id) == 1
end

-- Whether a task that is there belongs to a scope. Nearly always it does, and its envelope's facts end with the scope,
-- which is cheaper to see than to parse.
local function is_of_scope(id, scope)
  local owner = call('HGET', K.task_state .. id, 'scope')
  if not owner and call('HSTRLEN', K.tasks, id) <= READ then
    local envelope, ending = call('HGET', K.tasks, id) or '', ',"' .. scope .. '"]'
    local last = string.find(envelope, '\n', 1, true) or 0
    if string.sub(envelope, last - #ending, last - 1) == ending then return true end
  end
  return (owner or scope_of(id)) == scope
end

-- The secrets in derived ids, so that no client can take one beforehand: the salt of this partition, then those of
-- partitions whose ids have come here (`move_notes.lua`).
local salts_read
local function salts()
  if salts_read then return salts_read end
  salts_read = {}
  for salt in string.gmatch(call('HGET', K.segments, 'salt') or '', '%S+') do salts_read[#salts_read + 1] = salt end
  return salts_read
end

-- The derived id of that number; with this partition's salt, unless another is given.
local function plain_digits(number) return string.format('%.0f', number) end
local function derived_id(scope, id, number, salt)
  local secret = table.concat({ salt or salts()[1], scope, plain_digits(number), id }, ' ')
  return id .. '~' .. string.sub(redis.sha1hex(secret), 1, 16)
end

-- The name under which `renamed` holds a scope and message id. A scope has no spaces.
local function family(scope, id) return scope .. ' ' .. id end
local function newest_of(scope, id) return tonumber(call('HGET', K.renamed, family(scope, id)) or nil) or 0 end

-- Calls `visit` with each derived id that it looks at, the newest first, until `visit` answers true.
local function any_derived(scope, id, newest, visit)
  for number = newest, math.max(1, newest - FAMILY + 1), -1 do
    for _, salt in ipairs(salts()) do
      if visit(derived_id(scope, id, number, salt)) then return true end
    end
  end
  return false
end

-- Whether a known id belongs to a scope.
local function belongs(id, scope)
  local line = call('HGET', K.history_new, id) or (old_history and call('HGET', K.history_old, id))
  if line then return string.match(line, '"(%x*)"%]$') == scope end
  return is_of_scope(id, scope)
end

-- Whether a task of that id is here: it waits, runs, or is a dead letter.
local function is_here(id) return call('HEXISTS', K.tasks, id) == 1 or call('ZSCORE', K.dead, id) end

-- The ids under which a scope's message id is known: the derived ones, the newest first, and the id itself. Under
-- `laid_at`, if given, lies a new envelope, and no task (`keeping.lua`).
local function names_of(id, scope, laid_at)
  local names = {}
  local function note(name)
    local is_known = (name ~= laid_at and is_here(name)) or has_ended(name)
    if is_known and belongs(name, scope) then names[#names + 1] = name end
  end
  any_derived(scope, id, newest_of(scope, id), note)
  note(id)
  return names
end
