-- Behind the ids in the scripts that take messages in: whether a message is known already, and the id under
-- which its envelope is kept. ARGV 2 and 3 are as in `enqueue.lua`.

local now, any_renamed

-- Whether an id that is known belongs to this scope. Entries of versions that knew no scopes belong to all.
local function is_ours(id, scope)
  local line = call('HGET', K.history_new, id) or (old_history and call('HGET', K.history_old, id))
  if line then
    local owner = string.match(line, '"(%x*)"%]$')
    return owner == nil or owner == scope
  end
  local died = call('ZSCORE', K.dead, id)
  if died and now - died > tonumber(ARGV[2]) then return false end
  return is_of_scope(id, scope)
end

local function is_known_as_ours(id, scope)
  return (has_ended(id) or call('HEXISTS', K.tasks, id) == 1) and is_ours(id, scope)
end

-- Keeps the message under the next of its derived ids. That one is free, as nobody could name it before,
-- but for letters that have outlived what `renamed` knew of them: past a few, the clock gives a number.
local function keep_renamed(scope, id, newest, envelope)
  call('HSETNX', K.segments, 'salt', ARGV[3])
  for step = 1, FAMILY + 1 do
    local number = step <= FAMILY and newest + step or now
    local derived = derived_id(scope, id, number)
    if not has_ended(derived) and call('HSETNX', K.tasks, derived, envelope) == 1 then
      call('HSET', K.renamed, family(scope, id), plain_digits(number))
      any_renamed = true
      return derived
    end
    if is_ours(derived, scope) then return nil end
  end
  error('no derived id of ' .. id .. ' is free: did somebody change keys by hand?')
end

-- Keeps a message's envelope, and returns the id that its task has; nil for a duplicate.
local function keep(id, scope, envelope)
  local newest = any_renamed and tonumber(call('HGET', K.renamed, family(scope, id)) or nil) or 0
  local function is_it(derived) return is_known_as_ours(derived, scope) end
  if newest > 0 and any_derived(scope, id, newest, is_it) then return nil end
  if not has_ended(id) and call('HSETNX', K.tasks, id, envelope) == 1 then return id end
  if is_ours(id, scope) then return nil end
  return keep_renamed(scope, id, newest, envelope)
end
