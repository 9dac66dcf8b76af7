-- In front of scripts that write where nothing was: whether this partition is still one of as many as the caller
-- believes (PARTITIONS; 0 for a caller that doesn't say). Each partition notes the number under its own tag, and so
-- does one that has ended. A daemon that slept while a namespace was moved is refused here, before the script writes
-- anything: no daemon looks there any more.
local function other_layout()
  if PARTITIONS == 0 then return nil end
  local known = call('HMGET', K.partitions, 'number', 'moving_to')
  if not known[1] or (not known[2] and tonumber(known[1]) == PARTITIONS) then return nil end
  return redis.error_reply('REPARTITIONED ' .. known[1] .. ' ' .. (known[2] or '0'))
end
