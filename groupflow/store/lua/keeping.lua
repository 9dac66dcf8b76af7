-- Behind the ids in the scripts that take messages in: whether a message is known already, and the id under
-- which its envelope is kept. ARGV 2 and 3 are as in `enqueue.lua`.

local now, any_renamed

-- Whether a known id is still this scope's: a letter that died long ago has given its own back.
local function is_ours(id, scope)
  if not belongs(id, scope) then return false end
  local died = call('ZSCORE', K.dead, id)
  return not died or now - died <= tonumber(ARGV[2])
end

-- Reads an envelope that is `@`, its bytes, a space and an id: the command in front of this script put the real one
-- there (`run_replicated`), as it is too large for a script. Returns bytes and id; nil of any other.
local function laid(envelope)
  if byte(envelope) ~= 64 then return nil end
  local bytes, at = string.match(envelope, '^@(%d+) (.*)$')
  return tonumber(bytes), at
end

-- Whether an envelope lies under an id of which no task is known: every large task has a task state.
local function is_laid(id, bytes)
  return call('HSTRLEN', K.tasks, id) == bytes and call('EXISTS', K.task_state .. id) == 0
end

-- Whether a task is known under an id.
local function is_there(id, envelope)
  local bytes, at = laid(envelope)
  return call('HEXISTS', K.tasks, id) == 1 and not (at == id and is_laid(id, bytes))
end

-- Takes a free id for an envelope. Returns nil where the id is taken, and false where the envelope is too large to be
-- brought there.
local function take(id, envelope)
  if has_ended(id) then return nil end
  local bytes, at = laid(envelope)
  if not bytes then return call('HSETNX', K.tasks, id, envelope) == 1 or nil end
  if at == id and is_laid(id, bytes) then return true end
  if call('HEXISTS', K.tasks, id) == 1 then return nil end
  return false
end

-- Keeps the message under the next of its derived ids. That one is free, as no client could name it before. Some
-- letters have outlived what `renamed` knew of them: past a few, the clock gives a number.
local function keep_renamed(scope, id, newest, envelope)
  call('HSETNX', K.segments, 'salt', ARGV[3])
  for step = 1, FAMILY + 1 do
    local number = step <= FAMILY and newest + step or now
    local derived = derived_id(scope, id, number)
    local taken = take(derived, envelope)
    if taken == false then return nil, derived end
    if taken then
      call('HSET', K.renamed, family(scope, id), plain_digits(number))
      any_renamed = true
      return derived
    end
    if is_ours(derived, scope) then return nil end
  end
  error('no derived id of ' .. id .. ' is free: did an operator change keys by hand?')
end

local function keep_somewhere(id, scope, envelope)
  local newest = any_renamed and newest_of(scope, id) or 0
  local function is_it(derived)
    return (has_ended(derived) or is_there(derived, envelope)) and is_ours(derived, scope)
  end
  if newest > 0 and any_derived(scope, id, newest, is_it) then return nil end
  local taken = take(id, envelope)
  if taken then return id end
  if taken == false then return nil, id end
  if is_ours(id, scope) then return nil end
  return keep_renamed(scope, id, newest, envelope)
end

-- Keeps a message's envelope. Returns the id that its task has; nil for a duplicate; nil and an id where a large
-- envelope has to lie under that id.
local function keep(id, scope, envelope)
  local kept, wanted = keep_somewhere(id, scope, envelope)
  local bytes, at = laid(envelope)
  if bytes and kept ~= at and is_laid(at, bytes) then call('HDEL', K.tasks, at) end
  return kept, wanted
end
