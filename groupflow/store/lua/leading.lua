-- Which server leads here, and which one led at the very first write: in front of the scripts of sessions, and of those
-- that bring tasks, which may come before any session. So a partition with a task has an epoch, and a server that falls
-- back to before the first session shows another one too (docs/adr/0045).

-- What this server says of itself; '' where it denies that to the user: then there is only one epoch.
local function info(section)
  local said = redis.pcall('INFO', section)
  return type(said) == 'string' and said or ''
end

local function leader(replication)
  return string.match(replication, 'master_replid:(%x+)') or ''
end

-- Fences go on behind this number.
local function raise_fence(number)
  local behind = number - tonumber(call('GET', K.fence) or 0)
  if behind > 0 then call('INCRBY', K.fence, behind) end
end

-- The first epoch waits for no daemon: nothing was ever here. Fences begin at the clock's µs, and each takes more than a
-- microsecond: so none comes twice, even after lost writes.
local function note_first_epoch(now)
  if call('EXISTS', K.epoch) == 1 then return end
  call('HSET', K.epoch, 'id', leader(info('replication')), 'since', digits(now), 'before', '', 'fence', 0,
    'found', NEVER, 'awaited', call('ZCARD', K.daemons), 'doubt', 1)
  raise_fence(now)
end
