-- In front of scripts that write where nothing was: whether this partition is still one of as many as the caller
-- believes (PARTITIONS; 0 for a caller that doesn't say), and its keys are of the caller's format (FORMAT). Each
-- partition notes both under its own tag, and so does one that has ended. A daemon that slept while a namespace was
-- moved is refused here, before the script writes anything: no daemon looks there any more.
local function other_layout()
  if PARTITIONS == 0 then return nil end
  local known = call('HMGET', K.partitions, 'number', 'moving_to', 'format')
  local is_same = tonumber(known[1] or nil) == PARTITIONS and not known[2] and known[3] == FORMAT
  if not known[1] or is_same then return nil end
  return redis.error_reply(string.format('LAYOUT %s %s %s', known[1], known[2] or 0, known[3] or 0))
end
