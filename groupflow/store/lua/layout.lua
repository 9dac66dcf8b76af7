-- In front of scripts that put something where nothing was: is this partition still one of as many as the
-- caller believes there are (PARTITIONS; 0 for a caller who doesn't say). Each partition notes that under
-- its own tag, and so does one that has ended. Whoever slept while a namespace was moved is refused
-- here, before anything is written: what it brought would lie where nobody looks any more.
local function other_layout()
  if PARTITIONS == 0 then return nil end
  local known = call('HMGET', K.partitions, 'number', 'moving_to')
  if not known[1] or (not known[2] and tonumber(known[1]) == PARTITIONS) then return nil end
  return redis.error_reply('REPARTITIONED ' .. known[1] .. ' ' .. (known[2] or '0'))
end
